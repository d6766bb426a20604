"""Jobs as stacks, one after the other in this process; what cannot be stacked goes to a pool as usual."""

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from sfao.data.dataset import Dataset
from sfao.experiment.determinism import deterministic_kernels
from sfao.experiment.errors import Interrupted, is_out_of_memory
from sfao.experiment.execute import set_up
from sfao.experiment.pool import Event, Watch, run_all
from sfao.experiment.record import Record
from sfao.experiment.runner import Runner
from sfao.experiment.stacked.divide import Division, divide, find_model_obstacle
from sfao.experiment.stacked.member import Member
from sfao.experiment.stacked.stack import Stack, WatchFailed, tell_apart
from sfao.experiment.worker import Begun, Failure, Job, summarise_error
from sfao.streams.suite import BENCHMARKS

Say = Callable[[str], None]


def run_stacked(
    jobs: Sequence[Job],
    *,
    workers: int | None = None,
    threads: int = 1,
    data_root: Path | None = None,
    resume: bool = False,
    watch: Watch = lambda job, event: None,
    stopping: Callable[[], bool] = lambda: False,
    log: Sequence[str] = (),
    say: Say = lambda line: None,
    others: Runner = run_all,
) -> list[Record | Failure]:
    """Run the jobs as `run_all` does, but those that can in stacks; `others` runs those that cannot.

    `say` is told in a line each which they are and why, and whatever else a user should know.
    When `stopping` returns True, the runs save their state, each a checkpoint of its own, and Interrupted is raised.
    """
    endings: dict[Path, Record | Failure] = {}

    def hear(job: Job, event: Event) -> None:
        if isinstance(event, Record | Failure):
            endings[job.folder] = event
        watch(job, event)

    datasets = {name: BENCHMARKS[name].load(data_root) for name in {job.config.benchmark for job in jobs}}
    division = check_models(divide(jobs), datasets)
    for reason, left in division.others.items():
        say(f"not stacked: {', '.join(job.folder.name for job in left)}: {reason}")
    with _use_threads(threads):
        for stack in division.stacks:
            run_stack(stack, datasets[stack[0].config.benchmark], resume, hear, stopping, say)
    others(
        [job for left in division.others.values() for job in left],
        workers=workers,
        threads=threads,
        data_root=data_root,
        resume=resume,
        watch=hear,
        stopping=stopping,
        log=log,
    )
    return [endings[job.folder] for job in jobs]


def check_models(division: Division, datasets: dict[str, Dataset]) -> Division:
    """Return the division without stacks of models that cannot be stacked."""
    checked = Division(others={reason: list(left) for reason, left in division.others.items()})
    for stack in division.stacks:
        first = stack[0]
        obstacle = find_model_obstacle(set_up(first.config, datasets[first.config.benchmark], first.folder))
        if obstacle is None:
            checked.stacks.append(stack)
        else:
            checked.leave_out(stack, obstacle)
    return checked


def run_stack(
    jobs: Sequence[Job], dataset: Dataset, resume: bool, watch: Watch, stopping: Callable[[], bool], say: Say
) -> None:
    """Run the jobs to their ends, as many of them together as are at the same step and as the memory allows."""
    members: list[Member] = []
    watch = tell_apart(watch)
    try:
        for job in jobs:
            _begin(job, dataset, resume, watch, members)
        most = len(members)
        while waiting := [member for member in members if not member.is_ended]:
            place = waiting[0].describe_place()
            together = [member for member in waiting if member.describe_place() == place][:most]
            if not _learn(together, watch, stopping):
                most = len(together) // 2
                unsaved = _save_all(together)  # some of them wait until others have ended
                say(f"out of memory with {len(together)} runs in a stack: going on with {most}")
                for name, reason in unsaved.items():
                    say(f"{name} is not saved: {reason}")
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
    except Interrupted:
        raise Interrupted(_save_all(members)) from None
    except WatchFailed as failed:  # the runs keep what they have done
        _save_all(members)
        raise failed.error from failed.error.__cause__
    finally:
        for member in members:
            member.release()


def _begin(job: Job, dataset: Dataset, resume: bool, watch: Watch, members: list[Member]) -> None:
    """Add the run to the members, unless it is finished or cannot begin."""
    watch(job, Begun())
    try:
        member = Member(job, dataset)
        finished = member.begin(resume)
    except Exception as error:  # of this run alone
        watch(job, Failure(summarise_error(error), traceback.format_exc()))
        return
    if finished is None:
        members.append(member)
    else:
        watch(job, finished)


def _save_all(members: Sequence[Member]) -> dict[str, str]:
    """Save all runs that go on; return {run: reason} of those that could not be saved."""
    unsaved: dict[str, str] = {}
    for member in members:
        if not member.is_ended:
            try:
                member.save()
            except Exception as error:  # of this run alone
                unsaved[member.folder.name] = summarise_error(error)
    return unsaved


def _learn(members: Sequence[Member], watch: Watch, stopping: Callable[[], bool]) -> bool:
    """Let the members learn a task together; return False where the memory was not enough, for fewer to try."""
    try:
        with deterministic_kernels(members[0].config.deterministic):
            Stack(members, watch, stopping).learn()
    except (Interrupted, WatchFailed):
        raise
    except Exception as error:
        if is_out_of_memory(error) and len(members) > 1:
            return False
        for member in members:
            if not member.is_ended:
                watch(member.job, member.fail(error))
    return True


@contextmanager
def _use_threads(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
