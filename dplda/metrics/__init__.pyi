from ._coherence import coherence as coherence
from ._coherence import match_topics as match_topics
from ._coherence import topic_diversity as topic_diversity
from ._noisy_score import noisy_score as noisy_score
from ._perplexity import held_out_perplexity as held_out_perplexity
from ._perplexity import unigram_perplexity as unigram_perplexity
