"""The public names, for type checkers; at run time `__getattr__` in __init__.py gives them."""

from hillclimb.agent.api.ask_tell import AskTell as AskTell
from hillclimb.agent.api.ask_tell import Incumbent as Incumbent
from hillclimb.agent.api.ask_tell import climb as climb
from hillclimb.agent.api.judging import judge_tree as judge_tree
from hillclimb.agent.api.runs import CandidateRecord as CandidateRecord
from hillclimb.agent.api.runs import RunRecord as RunRecord
from hillclimb.agent.api.runs import TimedSegment as TimedSegment
from hillclimb.agent.api.runs import Verdict as Verdict
from hillclimb.agent.api.runs import read_run as read_run
from hillclimb.agent.evaluate.evaluation import EvaluationResult as EvaluationResult
from hillclimb.agent.proposal import Edit as Edit
from hillclimb.agent.proposal import Proposal as Proposal
from hillclimb.agent.screen.events import Event as Event
from hillclimb.harness.errors import CaseError as CaseError
from hillclimb.harness.errors import HillclimbError as HillclimbError
from hillclimb.harness.errors import MachineError as MachineError
from hillclimb.harness.errors import UsageError as UsageError
from hillclimb.harness.records import Confirmation as Confirmation
from hillclimb.harness.records import Estimate as Estimate
from hillclimb.harness.records import GateReport as GateReport
from hillclimb.harness.records import Interval as Interval
from hillclimb.harness.records import Progress as Progress
from hillclimb.harness.records import Provenance as Provenance
from hillclimb.harness.records import Reason as Reason
from hillclimb.harness.records import Screening as Screening

__version__: str
