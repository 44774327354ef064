from ._hdplda import PublishedHDPLDA as PublishedHDPLDA
from ._iftm import PublishedIFTMParty as PublishedIFTMParty
from ._iftm import recover_counts as recover_counts
from ._sublda import PublishedSubLDA as PublishedSubLDA
from ._svilda import PublishedPrivateSVILDA as PublishedPrivateSVILDA
