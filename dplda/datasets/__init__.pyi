from ._shards import CountShards as CountShards
from ._shards import write_shards as write_shards
from ._synthetic import make_topic_corpus as make_topic_corpus
from ._word_vectors import load_word_vectors as load_word_vectors
from ._words import load_public_vocabulary as load_public_vocabulary
from ._words import load_wordnet_glosses as load_wordnet_glosses
