"""The geometry of grokking: toy tasks, the reduced cost of a first layer, and what follows from it.

Pure functions in the symbols of arXiv 2511.01938, in float64. The closed forms are about bias-free
two-layer nets with squared error; deeper nets have the manifold part only.
"""

# tasks, the two-layer net, isolated dynamics, fast-forward
# manifold, toy dynamics, representation
from triplepoint.grokking.ablation import excluded_logits as excluded_logits
from triplepoint.grokking.ablation import restricted_logits as restricted_logits
from triplepoint.grokking.addition import addition_descent as addition_descent
from triplepoint.grokking.addition import addition_end as addition_end
from triplepoint.grokking.addition import addition_flow as addition_flow
from triplepoint.grokking.addition import addition_times as addition_times
from triplepoint.grokking.circles import circle_points as circle_points
from triplepoint.grokking.circles import strongest_frequencies as strongest_frequencies
from triplepoint.grokking.concentration import effective_number as effective_number
from triplepoint.grokking.concentration import gini as gini
from triplepoint.grokking.concentration import (
    inverse_participation_ratio as inverse_participation_ratio,
)
from triplepoint.grokking.dense import jacobian_rank as jacobian_rank
from triplepoint.grokking.drift import compare_update as compare_update
from triplepoint.grokking.drift import homogeneity as homogeneity
from triplepoint.grokking.drift import validity_number as validity_number
from triplepoint.grokking.flows import descend as descend
from triplepoint.grokking.flows import integrate as integrate
from triplepoint.grokking.forecast import LAWS as LAWS
from triplepoint.grokking.forecast import Forecast as Forecast
from triplepoint.grokking.forecast import forecast_grokking as forecast_grokking
from triplepoint.grokking.forecast import leave_one_out as leave_one_out
from triplepoint.grokking.forecast import median_ratio as median_ratio
from triplepoint.grokking.forwarding import WILL_GROK_BELOW as WILL_GROK_BELOW
from triplepoint.grokking.forwarding import FastForward as FastForward
from triplepoint.grokking.forwarding import GrokOutlook as GrokOutlook
from triplepoint.grokking.forwarding import fast_forward as fast_forward
from triplepoint.grokking.forwarding import will_it_grok as will_it_grok
from triplepoint.grokking.groups import discrete_log_order as discrete_log_order
from triplepoint.grokking.groups import irrep_power as irrep_power
from triplepoint.grokking.isolated import ReducedCost as ReducedCost
from triplepoint.grokking.isolated import reduced_cost as reduced_cost
from triplepoint.grokking.isolated_laws import complexity_threshold as complexity_threshold
from triplepoint.grokking.kinks import project_with_kinks as project_with_kinks
from triplepoint.grokking.kinks import project_with_mean_gates as project_with_mean_gates
from triplepoint.grokking.kinks import watch_kinks as watch_kinks
from triplepoint.grokking.laws import GrokFacts as GrokFacts
from triplepoint.grokking.manifold import TangentProjection as TangentProjection
from triplepoint.grokking.manifold import tangent_projection as tangent_projection
from triplepoint.grokking.representation import describe_embedding as describe_embedding
from triplepoint.grokking.representation import fourier_features as fourier_features
from triplepoint.grokking.retraction import off_manifold_distance as off_manifold_distance
from triplepoint.grokking.retraction import retract as retract
from triplepoint.grokking.slow_time import SlowClock as SlowClock
from triplepoint.grokking.slow_time import slow_clock as slow_clock
from triplepoint.grokking.tasks import OPERATIONS as OPERATIONS
from triplepoint.grokking.tasks import Task as Task
from triplepoint.grokking.tasks import pair_task as pair_task
from triplepoint.grokking.tasks import parity_task as parity_task
from triplepoint.grokking.toys import Toy as Toy
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
