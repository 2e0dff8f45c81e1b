# The public names of dlcp.torch, and where each lives: the one listing, which __init__.py reads too.

from dlcp.torch.backend_name import BACKEND_NAME as BACKEND_NAME
from dlcp.torch.creation import create as create
from dlcp.torch.data.cache import DataCache as DataCache
from dlcp.torch.data.sampler import EpochSampler as EpochSampler
from dlcp.torch.gradient.buffer.replicas import ReplicaError as ReplicaError
from dlcp.torch.gradient.context import gradients as gradients
from dlcp.torch.gradient.fsdp.reduce_scatter import BoundedReduceScatter as BoundedReduceScatter
from dlcp.torch.gradient.fsdp.reduce_scatter import shard_gradients as shard_gradients
from dlcp.torch.gradient.hook import gradient_hook as gradient_hook
from dlcp.torch.gradient.loss.phase import PhaseRule as PhaseRule
from dlcp.torch.gradient.options import GradientOptions as GradientOptions
from dlcp.torch.gradient.residual.rule import ResidualRule as ResidualRule
from dlcp.torch.gradient.state import GradientState as GradientState
from dlcp.torch.hooks import bfloat16_compress_hook as bfloat16_compress_hook
from dlcp.torch.hooks import fp16_compress_hook as fp16_compress_hook
from dlcp.torch.hub_optimizer import HubOptimizer as HubOptimizer
from dlcp.torch.layerwise.optimizer import LayerwiseOptimizer as LayerwiseOptimizer
from dlcp.torch.monitored_barrier import monitored_barrier as monitored_barrier
from dlcp.torch.options import Options as Options
from dlcp.torch.precision import all_gather as all_gather
from dlcp.torch.precision import all_reduce as all_reduce
from dlcp.torch.precision import reduce_scatter as reduce_scatter
from dlcp.torch.process_group import ProcessGroup as ProcessGroup
from dlcp.torch.registration import register as register
from dlcp.torch.trust_ratio import LAMB as LAMB
from dlcp.torch.trust_ratio import LARS as LARS
