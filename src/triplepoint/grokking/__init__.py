"""The geometry of grokking: toy tasks, the reduced cost of a first layer, and what follows from it.

Pure functions in the symbols of arXiv 2511.01938, in float64. The closed forms are about bias-free
two-layer nets with squared error; deeper nets have the manifold part only.
"""

# tasks, the two-layer net, isolated dynamics, fast-forward
from triplepoint.grokking.forwarding import WILL_GROK_BELOW as WILL_GROK_BELOW
from triplepoint.grokking.forwarding import FastForward as FastForward
from triplepoint.grokking.forwarding import GrokOutlook as GrokOutlook
from triplepoint.grokking.forwarding import fast_forward as fast_forward
from triplepoint.grokking.forwarding import will_it_grok as will_it_grok
from triplepoint.grokking.isolated import ReducedCost as ReducedCost
from triplepoint.grokking.isolated import reduced_cost as reduced_cost
from triplepoint.grokking.tasks import OPERATIONS as OPERATIONS
from triplepoint.grokking.tasks import Task as Task
from triplepoint.grokking.tasks import pair_task as pair_task
from triplepoint.grokking.tasks import parity_task as parity_task
from triplepoint.grokking.trajectories import Point as Point
from triplepoint.grokking.trajectories import Trajectory as Trajectory
from triplepoint.grokking.trajectories import bogacki_shampine as bogacki_shampine
from triplepoint.grokking.trajectories import euler as euler
from triplepoint.grokking.trajectories import simulate as simulate
from triplepoint.grokking.trajectories import simulate_joint as simulate_joint
from triplepoint.grokking.two_layer import ACTIVATIONS as ACTIVATIONS
from triplepoint.grokking.two_layer import Activation as Activation
from triplepoint.grokking.two_layer import accuracy as accuracy
from triplepoint.grokking.two_layer import as_module as as_module
from triplepoint.grokking.two_layer import initial_first_layer as initial_first_layer
from triplepoint.grokking.two_layer import predict as predict

# manifold, toy dynamics, representation
