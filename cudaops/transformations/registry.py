"""All transformations, in the order in which a search that knows nothing tries them."""

from __future__ import annotations

from cudaops.transformations.accumulators import Accumulators
from cudaops.transformations.atomics_private import AtomicsPrivate
from cudaops.transformations.atomics_warp import AtomicsWarp
from cudaops.transformations.barriers import Barriers
from cudaops.transformations.base import Transformation
from cudaops.transformations.block_order import BlockOrder
from cudaops.transformations.bounds_checks import BoundsChecks
from cudaops.transformations.coarsen import Coarsen
from cudaops.transformations.cooperate import Cooperate
from cudaops.transformations.distribute import Distribute
from cudaops.transformations.fold import Fold
from cudaops.transformations.geometry import Geometry
from cudaops.transformations.grid_stride import GridStride
from cudaops.transformations.halo import Halo
from cudaops.transformations.index32 import Index32
from cudaops.transformations.inline import Inline
from cudaops.transformations.interior import Interior
from cudaops.transformations.jam import Jam
from cudaops.transformations.keep_loads import KeepLoads
from cudaops.transformations.loads_first import LoadsFirst
from cudaops.transformations.lookup import Lookup
from cudaops.transformations.merge_blocks import MergeBlocks
from cudaops.transformations.pad import Pad
from cudaops.transformations.precompute_table import PrecomputeTable
from cudaops.transformations.prefetch import Prefetch
from cudaops.transformations.private_arrays import PrivateArrays
from cudaops.transformations.register_block import RegisterBlock
from cudaops.transformations.restrict_cache import RestrictCache
from cudaops.transformations.scalar_replace import ScalarReplace
from cudaops.transformations.share_serial import ShareSerial
from cudaops.transformations.share_uniform import ShareUniform
from cudaops.transformations.shuffle_tree import ShuffleTree
from cudaops.transformations.sincos import SinCos
from cudaops.transformations.slp import Slp
from cudaops.transformations.specialise import Specialise
from cudaops.transformations.speculate import Speculate
from cudaops.transformations.split_work import SplitWork
from cudaops.transformations.stage import Stage
from cudaops.transformations.strength_reduce import StrengthReduce
from cudaops.transformations.strides import Strides
from cudaops.transformations.strip import Strip
from cudaops.transformations.tabulate import Tabulate
from cudaops.transformations.tiles import Tiles
from cudaops.transformations.unroll import Unroll
from cudaops.transformations.vectorise import Vectorise
from cudaops.transformations.window import RegisterWindow
from cudaops.transformations.zero_factors import ZeroFactors

TRANSFORMATIONS: tuple[Transformation, ...] = (
    Inline(),
    Specialise(),
    Cooperate(),
    SplitWork(),
    Distribute(),
    ShuffleTree(),
    ShareSerial(),
    ShareUniform(),
    RegisterBlock(),
    Coarsen(),
    Strip(),
    LoadsFirst(),
    Vectorise(),
    Slp(),
    Geometry(),
    Strides(),
    BlockOrder(),
    Tiles(),
    Fold(),
    GridStride(),
    StrengthReduce(),
    SinCos(),
    Tabulate(),
    PrecomputeTable(),
    Lookup(),
    Index32(),
    AtomicsPrivate(),
    AtomicsWarp(),
    MergeBlocks(),
    PrivateArrays(),
    Pad(),
    Stage(),
    Halo(),
    Prefetch(),
    Accumulators(),
    Unroll(),
    Speculate(),
    BoundsChecks(),
    RestrictCache(),
    KeepLoads(),
    ZeroFactors(),
    ScalarReplace(),
    Interior(),
    Jam(),
    RegisterWindow(),
    Barriers(),
)


def transformation(name: str) -> Transformation:
    """The one of this name. Raises KeyError."""
    for one in TRANSFORMATIONS:
        if one.name == name:
            return one
    raise KeyError(name)
