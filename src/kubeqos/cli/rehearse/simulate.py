"""`kubeqos simulate`: rehearse a change before making it.

`scale-up` and `fit` work on a copy of the cluster; `run` and `compare` on nodes described in a file. Nothing is changed
anywhere.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubeqos.cli.connection import Target, asks
from kubeqos.cli.output import (
    emit,
    emit_begin,
    emit_names,
    emit_rest,
    file_option,
    is_data,
    output_option,
    table,
    wide_output_option,
)
from kubeqos.errors import InputError
from kubeqos.views.chart import clock

if TYPE_CHECKING:
    from kubeqos.simulation.measures import Outcome
    from kubeqos.simulation.run import Simulation
    from kubeqos.simulation.scenario import Scenario

scenario_argument = click.argument("scenario_file", metavar="SCENARIO", type=click.Path(path_type=Path))
seed_option = click.option("--seed", type=int, help="Seed of the random numbers, in place of the scenario's.")
svg_option = click.option("--svg", "svg_file", type=click.Path(path_type=Path), help="Also draw the charts there.")


@click.group("simulate")
def command() -> None:
    """Rehearse a change on a copy of the cluster."""


@command.command("scale-up")
@asks()
@click.option(
    "--node-group", "groups_file", type=click.Path(path_type=Path), required=True, help="Groups of nodes to add."
)
@wide_output_option
def scale_up(target: Target, groups_file: Path, form: str) -> None:
    """Tell how many nodes of which group would make the pending pods run.

    The file lists groups: `name`, `max`, and a node `template` with labels, taints, allocatable and qosResources.
    """
    from kubeqos.cli.rehearse.claimed import volumes_now
    from kubeqos.cli.rehearse.groups import read_groups
    from kubeqos.placement.growth.scaleup import rehearse
    from kubeqos.scheduler.reading.snapshot import snapshot

    nodes = target.reader.items("/api/v1/nodes")
    groups = read_groups(groups_file, nodes)
    cluster, waiting = snapshot(nodes, target.reader.items("/api/v1/pods"), volumes=volumes_now(target))
    outcome = rehearse(cluster, waiting, groups)
    if is_data(form):
        emit({"added": outcome.added, "placed": outcome.placed, "unplaced": outcome.unplaced}, form)
        return
    if form == "name":
        added = outcome.added.items()
        emit_names(f"node/{group}-{number}" for group, count in added for number in range(1, count + 1))
        return
    if not waiting:
        click.echo("No pods are pending.")
        return
    click.echo(table(["group", "nodes to add"], outcome.added.items()))
    click.echo()
    rows = [[name, node, ""] for name, node in outcome.placed.items()]
    rows += [[name, "", why] for name, why in outcome.unplaced.items()]
    click.echo(table(["pod", "would run on", "why not"], rows))


@command.command("fit")
@asks("namespace")
@file_option
@click.option("--nodes", "node_files", multiple=True, help="Node manifests to use in place of a cluster.")
@wide_output_option
def fit(target: Target, files: tuple[str, ...], node_files: tuple[str, ...], form: str) -> None:
    """Tell whether pods would fit, where, and who would be evicted for them.

    Takes pods and workloads with a pod template. The exit code is 1 when one of them does not fit.
    """
    from kubeqos.cli.rehearse import fitting
    from kubeqos.views.fitting import plain

    answers = fitting.rehearsed(target, files, node_files)
    if is_data(form):
        emit([plain(one) for one in answers], form)
    elif form == "name":
        emit_names(f"pod/{one.pod.partition('/')[2]}" for one in answers if one.fits)
    else:
        click.echo(fitting.as_text(answers, wide=form == "wide"))
    if not all(one.fits for one in answers):
        raise click.exceptions.Exit(1)


@command.command("run")
@scenario_argument
@click.option("--policy", "policy", type=click.Path(path_type=Path), help="A SchedulerConfiguration file.")
@seed_option
@svg_option
@output_option
def run(scenario_file: Path, policy: Path | None, seed: int | None, svg_file: Path | None, form: str) -> None:
    """Play a SCENARIO of arriving and leaving pods on virtual time.

    The same scenario, seed and policy give the same result, always.
    """
    from kubeqos.simulation.scenario import load

    scenario = load(scenario_file, seed)
    if form == "table":
        click.echo(_heading(scenario_file, scenario))
    name, simulation = _prepared(scenario, policy)
    from kubeqos.cli.rehearse import outcomes  # loads numpy: after what can be said without it
    from kubeqos.views import outcomes as measured

    if form != "table":
        emit_begin(measured.heading(name, scenario), form)
    result = simulation.run(name)
    if svg_file is not None:
        _write(svg_file, outcomes.svg([result]))
    if form == "table":
        click.echo(outcomes.one(result))
    else:
        emit_rest(measured.measures(result), form)


@command.command("compare")
@scenario_argument
@click.option(
    "--policy",
    "policies",
    type=click.Path(path_type=Path),
    multiple=True,
    required=True,
    help="A SchedulerConfiguration file; give at least two.",
)
@seed_option
@svg_option
@output_option
def compare(
    scenario_file: Path, policies: tuple[Path, ...], seed: int | None, svg_file: Path | None, form: str
) -> None:
    """Play one SCENARIO under two or more policies, with the very same pods."""
    from kubeqos.simulation.scenario import load

    if len(policies) < 2:
        raise click.UsageError("give --policy at least twice; `kubeqos simulate run` plays one")
    scenario = load(scenario_file, seed)
    if form == "table":
        click.echo(_heading(scenario_file, scenario))
    plays = [_prepared(scenario, policy) for policy in policies]
    from kubeqos.cli.rehearse import outcomes
    from kubeqos.views import outcomes as measured

    results: list[Outcome] = []
    for place, (name, simulation) in enumerate(plays):
        if form != "table":
            emit_begin(measured.heading(name, scenario), form, place)
        results.append(simulation.run(name))
        if form != "table":
            emit_rest(measured.measures(results[-1]), form, place, last=place == len(plays) - 1)
    if svg_file is not None:
        _write(svg_file, outcomes.svg(results))
    if form == "table":
        click.echo(outcomes.several(results))


def _heading(path: Path, scenario: Scenario) -> str:
    """What is played: told before it is, since a long scenario takes its time."""
    pods = [arrival for workload in scenario.workloads for arrival in workload.arrivals]
    running = sum(1 for pod in pods if pod.node)
    told = {"scenario": path, "duration": clock(scenario.duration), "nodes": len(scenario.nodes)}
    told |= {"running": running} if running else {}
    told |= {"arrivals": len(pods) - running, "seed": scenario.seed}
    return table(list(told), [list(told.values())]) + "\n"


def _prepared(scenario: Scenario, policy: Path | None) -> tuple[str, Simulation]:
    """The name of the policy, and the scenario under it; both are found right, and nothing is played yet."""
    if sys.stderr.isatty():  # a long scenario takes its time; somebody may be waiting
        name = "the default policy" if policy is None else str(policy)
        click.echo(f"playing {clock(scenario.duration)} under {name} …", err=True)
    from kubeqos.scheduler import config
    from kubeqos.scheduler.core import Profile
    from kubeqos.simulation.run import Simulation

    if policy is None:
        return "default", Simulation(scenario, (Profile(),))
    try:
        return policy.stem, Simulation(scenario, config.load(policy))
    except InputError as error:
        raise InputError(error.what, where=f"{policy}: {error.where}", remedy=error.remedy) from error


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error
