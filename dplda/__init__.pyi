from . import audit as audit
from . import datasets as datasets
from . import displays as displays
from . import federated as federated
from . import metrics as metrics
from . import privacy as privacy
from . import published as published
from .core._pipeline import pipeline_guarantee as pipeline_guarantee
from .document._plan import Plan as Plan
from .document._plan import plan as plan
from .document._public_prior import public_prior as public_prior
from .document._sublda import SubLDA as SubLDA
from .document._svilda import PrivateSVILDA as PrivateSVILDA
from .gibbs._gibbslda import GibbsLDA as GibbsLDA
from .local._lplda import LPLDA as LPLDA
from .local._lplda import OLPLDA as OLPLDA
from .local._memoized_reports import MemoizedReports as MemoizedReports
from .local._randomized_response import RandomizedResponse as RandomizedResponse
from .reading._topic_counts import private_topic_counts as private_topic_counts
from .release._release import load_release as load_release
from .release._release import save_release as save_release
from .release._released_model import ReleasedModel as ReleasedModel
from .text._count_vectorizer import PrivateCountVectorizer as PrivateCountVectorizer
from .text._topic_model import PrivateTopicModel as PrivateTopicModel
from .word._hdplda import HDPLDA as HDPLDA

__version__: str
