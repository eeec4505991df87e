"""The dashboard in a real browser, on a real cluster, with real clicks and keys."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from tests.dashboard.apng import moving
from tests.dashboard.browser import CHROMIUM, OWNED, PICTURES, WRITES, Cluster, Visit, chromium, running

pytestmark = [
    pytest.mark.slow,
    pytest.mark.kubectl,
    pytest.mark.timeout(900),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium; Debian's package is called chromium"),
]

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"
POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: default}}
spec:
  nodeSelector: {{kubernetes.io/hostname: {node}}}
  containers:
  - name: main
    image: app
    resources: {{requests: {{cpu: "{cpu}", memory: 1Gi}}, limits: {{cpu: "{cpu}", memory: 1Gi}}}}
"""

OWNING = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: default, annotations: {{katalyst.kubewharf.io/qos_level: dedicated_cores}}}}
spec:
  nodeSelector: {{kubernetes.io/hostname: qrm}}
  containers: [{{name: app, image: app, resources: {{requests: {{cpu: "{cpu}"}}, limits: {{cpu: "{cpu}"}}}}}}]
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("dashboard")) as found:
        found.kubectl("apply", "-f", "examples/qrm/pods.yaml", "-f", "examples/qos-classes/pod.yaml")
        found.kubectl("apply", "-f", "examples/cci/claim.yaml", "-f", "examples/pod-qos/pods.yaml")
        found.kubectl("create", "namespace", "team")
        found.kubectl("apply", "-n", "team", "-f", "examples/quota-scoping/quota-best-effort.yaml")
        found.kubectl("run", "-n", "team", "one", "--image=app")
        found.kubectl("create", "rolebinding", "bob", "-n", "team", "--clusterrole=view", "--user=bob")
        found.kubectl("apply", "-f", "-", manifest=POD.format(name="too-big", node="big", cpu=500))
        _scatter(found)
        yield found


def _scatter(cluster: Cluster) -> None:
    """Two owners fill a NUMA node beside its pools, a third goes to the other one, and one of the first two leaves."""
    cluster.kubectl("wait", "--for=condition=Ready", "pod/web", "pod/etl", "--timeout=120s")
    for name, cpu in (("left", 10), ("leaves", 20), ("right", 10)):
        cluster.kubectl("apply", "-f", "-", manifest=OWNING.format(name=name, cpu=cpu))
        cluster.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=120s")
    gone(cluster, "leaves")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def visit(browser: Browser, cluster: Cluster) -> Iterator[Visit]:
    """Somebody who has logged in; whatever the browser complains of fails the test."""
    found = Visit(browser)
    found.log_in(cluster.link())
    yield found
    found.close()
    assert found.complaints == []


WHERE = """owner => [...document.querySelector('.map').querySelectorAll(`[data-owner='${owner}']`)]
  .map(one => one.dataset.cpu).join()"""


def pinned(cluster: Cluster, name: str, cpu: int = 4, node: str = "big") -> None:
    cluster.kubectl("apply", "-f", "-", manifest=POD.format(name=name, node=node, cpu=cpu))


def gone(cluster: Cluster, name: str) -> None:
    cluster.kubectl("delete", "pod", name, "--now")


def test_a_link_works_once_and_leaves_no_trace_in_the_address(browser: Browser, cluster: Cluster) -> None:
    link = cluster.link()
    first, second = Visit(browser), Visit(browser)
    page = first.log_in(link)
    assert page.url.endswith("/dashboard/#/cluster")
    assert page.evaluate("history.length") <= 2
    assert page.evaluate("document.cookie") == ""  # no script can read it
    second.page.goto(link)
    said = second.page.get_by_role("alert")
    said.wait_for()
    assert "was used before" in said.inner_text()
    second.page.get_by_label("Or paste the link here").fill(cluster.link())
    second.page.get_by_role("button", name="Log in").click()
    second.page.get_by_role("heading", name="Cluster").wait_for()
    second.page.get_by_role("button", name="Log out").click()
    second.page.get_by_role("heading", name="Log in").wait_for()
    second.page.reload()
    second.page.get_by_role("heading", name="Log in").wait_for()
    for one in (first, second):
        one.close()


def test_a_wrong_link_is_refused(browser: Browser, cluster: Cluster) -> None:
    visit = Visit(browser)
    visit.page.goto(cluster.link()[:-5] + "wrong")
    visit.page.get_by_role("alert").wait_for()
    assert "this link is wrong" in visit.page.get_by_role("alert").inner_text()
    visit.close()


def test_a_scheduled_pod_lights_its_cores(visit: Visit, cluster: Cluster) -> None:
    page = visit.show("nodes/big")
    assert page.locator("[data-cpu]").count() == 384
    pinned(cluster, "lit", 6)
    visit.until(f"owner => ({OWNED})(owner) === 6", "default/lit/main")
    page = visit.show("pods/default/lit")
    visit.until("() => document.querySelectorAll('[data-lit=yes]').length === 6")
    told = page.get_by_role("region", name="CPUs", exact=True).inner_text()
    assert "its own" in told
    gone(cluster, "lit")


def test_hints_and_their_merge_stand_in_a_matrix(visit: Visit) -> None:
    page = visit.show("pods/default/etl")
    matrix = page.get_by_role("region", name="NUMA hints for app")
    matrix.wait_for()
    rows = [[cell.strip() for cell in row.split("\t")] for row in matrix.locator("table").inner_text().splitlines()]
    told = {row[0]: row[1:] for row in rows if len(row) > 2}
    assert next(row for row in rows if len(row) > 2)[:4] == ["Resource", "Offered by", "NUMA 0", "NUMA 1"]
    assert told["NIC"][:3] == ["plugin NIC", "● prefers", "● prefers"]
    assert told["cpu"][0] == "plugin cpu" and told["cpu"][-1] == "no preference"
    assert told["merged"][0] == "policy best-effort" and "✔ chosen" in told["merged"]
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download hints-etl as CSV").click()
    lines = Path(saved.value.path()).read_text().splitlines()
    assert lines[0] == "Containers,Resource,Offered by,Prefers,Possible,Merged to"
    assert lines[1].startswith("app,NIC,plugin NIC,0 or 1,,")


def test_a_pool_that_is_resized_changes_the_map(visit: Visit, cluster: Cluster) -> None:
    visit.show("nodes/qrm")
    owner = "default/web/app"
    visit.until(f"owner => ({OWNED})(owner) > 0", owner)
    before = visit.page.evaluate(OWNED, owner)
    pools = {
        line.split()[0]: int(line.split()[1])
        for line in cluster.kubeqos("plugin", "cpu", "pools", "--node", "qrm").splitlines()[1:]
    }
    pool = next(name for name, count in pools.items() if count == before)
    cluster.kubeqos("plugin", "cpu", "set-pool", "--node", "qrm", f"{pool}={before + 4}")
    visit.until(f"([owner, count]) => ({OWNED})(owner) === count", [owner, before + 4])
    cluster.kubeqos("plugin", "cpu", "set-pool", "--node", "qrm", f"{pool}={before}")


def test_a_waiting_pod_says_why_and_what_would_help(visit: Visit) -> None:
    page = visit.page
    page.get_by_text("Nearest miss:").first.wait_for()
    page.get_by_role("link", name="default/too-big").first.click()
    page.get_by_role("heading", name="too-big").wait_for()
    waits = page.get_by_role("region", name="Why it waits")
    waits.get_by_text("Insufficient cpu").first.wait_for()
    assert "needs 500 cpu" in waits.inner_text()
    assert waits.get_by_role("button", name="Copy: kubectl edit pod too-big -n default").is_visible()


def test_the_time_line_goes_back(visit: Visit, cluster: Cluster) -> None:
    page = visit.show("nodes/big")
    visit.until("() => document.getElementById('moment') !== null")
    before = int(time.time())
    time.sleep(2.2)
    pinned(cluster, "later", 8)
    visit.until(f"owner => ({OWNED})(owner) === 8", "default/later/main")
    time.sleep(1.2)
    page.reload()
    slider = page.locator("#moment")
    slider.wait_for()
    slider.focus()
    for _ in range(int(page.evaluate("Number(document.getElementById('moment').max)")) - before):
        page.keyboard.press("ArrowLeft")
    page.wait_for_url("**/*at=*")
    visit.until(
        f"owner => ({OWNED})(owner) === 0 && document.querySelectorAll('[data-cpu]').length === 384",
        "default/later/main",
    )
    page.get_by_role("button", name="Back to now").click()
    visit.until(f"owner => ({OWNED})(owner) === 8", "default/later/main")
    gone(cluster, "later")


def test_what_if(visit: Visit, cluster: Cluster) -> None:
    page = visit.show("whatif")
    page.get_by_role("button", name="Where would it go?").click()
    page.get_by_role("region", name="Where the pods would go").wait_for()
    assert "fits" in page.get_by_role("region", name="Where the pods would go").inner_text()
    page.get_by_label("Manifest of pods or workloads", exact=True).fill("kind: [")
    page.get_by_role("button", name="Where would it go?").click()
    page.get_by_text("not valid YAML").wait_for()
    page.get_by_role("button", name="Compare the policies").click()
    page.get_by_role("region", name="The policies compared").wait_for()
    titles = [one.get_attribute("aria-label") for one in page.locator(".chart").all()]
    assert [title.partition(" over ")[0] for title in titles if title] == [
        "CPU requested",
        "pods pending",
        "pods evicted",
    ]
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download pods-evicted as SVG").click()
    assert Path(saved.value.path()).read_text().startswith("<svg")
    page.get_by_role("button", name="Play the day once").click()
    day = page.get_by_role("region", name="The day", exact=True)
    day.wait_for()
    assert day.locator("thead").inner_text().split() == ["Measure", "spread"]
    assert page.get_by_role("button", name="Copy: kubeqos simulate run scenario.yaml").is_visible()
    assert "large" in page.get_by_role("region", name="Workloads").inner_text()
    page.get_by_role("button", name="Take this cluster").click()
    page.get_by_text("The scenario above is this cluster").wait_for()
    assert "name: big" in page.get_by_label("Scenario", exact=True).input_value()
    page.get_by_role("button", name="Play the day once").click()
    workloads = page.get_by_role("region", name="Workloads")
    workloads.get_by_text("best-effort").wait_for()
    assert "big" in workloads.inner_text()
    page.get_by_label("Scenario: open a file").set_input_files("examples/simulate/scenario.yaml")
    visit.until("() => document.getElementById('scenario').value.includes('kind: Scenario')")
    assert "what-if" not in cluster.kubectl("get", "pods", "-A")
    visit.complaints = [one for one in visit.complaints if "422" not in one]  # the refused manifest


def test_everything_by_keyboard(visit: Visit) -> None:
    page = visit.page
    page.reload()
    page.get_by_role("heading", name="Cluster").wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    _tab_to(page, "Pods")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Pods", exact=True).wait_for()
    page.get_by_role("link", name="default/too-big").wait_for()
    _tab_to(page, "default/too-big")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="too-big").wait_for()
    _tab_to(page, "Copy: kubeqos why too-big -n default --fix")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.keyboard.press("Enter")
    visit.until("() => document.getElementById('said').textContent.startsWith('Copied: kubeqos why')")


REACHED = """() => {
  const one = document.activeElement;
  return [one.ariaLabel ?? one.textContent, getComputedStyle(one).outlineStyle];
}"""


def _tab_to(page: Page, name: str) -> None:
    """Press Tab until the focus is on what has this name; it must get there, and be seen."""
    for _ in range(120):
        page.keyboard.press("Tab")
        reached, outline = page.evaluate(REACHED)
        if reached == name:
            assert outline != "none"
            return
    raise AssertionError(f"{name} cannot be reached by keyboard")


def test_an_identity_of_one_namespace_sees_that_one(browser: Browser, cluster: Cluster) -> None:
    visit = Visit(browser)
    page = visit.log_in(cluster.link("bob"))
    page.get_by_text("Left out: nodes: this user may not list them").wait_for()
    visit.show("pods")
    page.get_by_role("link", name="team/one").wait_for()
    assert page.get_by_role("link", name="default/").count() == 0
    page.evaluate("location.hash = '#/pods/default/too-big'")
    page.get_by_text("or none that this user may see").wait_for()
    visit.close()


def test_hostile_texts_do_nothing(visit: Visit, cluster: Cluster) -> None:
    event = {"message": HOSTILE, "name": "too-big"}
    cluster.kubectl(
        "create", "-f", "-",
        manifest="apiVersion: v1\nkind: Event\nmetadata: {generateName: hostile-, namespace: default}\n"
        f"involvedObject: {{kind: Pod, namespace: default, name: {event['name']}}}\nreason: Evicted\ntype: Warning\n"
        f"message: '{HOSTILE}'\nlastTimestamp: '2026-01-01T00:00:00Z'\n",
    )  # fmt: skip
    page = visit.show("pods/default/too-big")
    page.get_by_text(HOSTILE).first.wait_for()

    def named(route: object) -> None:
        """No API server lets a pod be called so; the page does not rely on it."""
        texts = dict.fromkeys(("namespace", "name", "phase", "node", "qosClass", "cpu", "memory", "reason"), HOSTILE)
        row = {**texts, "classes": {HOSTILE: HOSTILE}}
        route.fulfill(json={"pods": {"x": row}, "total": 1, "commands": {}})  # type: ignore[attr-defined]

    page.route("**/api/v1/pods?*", named)
    visit.show("pods")
    page.get_by_role("link", name=f"{HOSTILE}/{HOSTILE}").wait_for()
    assert page.locator("main img, main script").count() == 0


def test_tables_and_pictures_can_be_taken_away(visit: Visit) -> None:
    page = visit.show("nodes/qrm")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download map-qrm as SVG").click()
    assert Path(saved.value.path()).read_text().startswith("<svg")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download pods-qrm as CSV").click()
    for table in page.locator("table").all():  # each has a button near it
        assert table.locator("xpath=ancestor::section//button[contains(@aria-label, 'as CSV')]").count() > 0
    assert Path(saved.value.path()).read_text().splitlines()[0] == "Pod,State,QoS,CPU,Memory,Classes"


def test_a_picture_that_moves(browser: Browser, cluster: Cluster, tmp_path: Path) -> None:
    """Pods come and go on a machine of 384 CPUs; the frames are one picture of the tour."""
    visit = Visit(browser, viewport={"width": 900, "height": 640})
    visit.log_in(cluster.link())
    visit.show("nodes/big")
    frames = [visit.page.screenshot()]
    for number in range(5):
        pinned(cluster, f"moving-{number}", 8 + 8 * number)
        visit.until(f"owner => ({OWNED})(owner) > 0", f"default/moving-{number}/main")
        frames.append(visit.page.screenshot())
    for number in (1, 3):
        gone(cluster, f"moving-{number}")
        visit.until(f"owner => ({OWNED})(owner) === 0", f"default/moving-{number}/main")
        frames.append(visit.page.screenshot())
    ((PICTURES if WRITES else tmp_path) / "dashboard-moving.png").write_bytes(moving(frames, 900))
    for number in (0, 2, 4):
        gone(cluster, f"moving-{number}")
    visit.close()


VIEWS = {
    "cluster": "cluster",
    "node": "nodes/cci",
    "pools": "nodes/qrm",
    "pod": "pods/default/hpc",
    "hints": "pods/default/etl",
    "waiting": "pods/default/too-big",
    "pods": "pods",
    "whatif": "whatif",
    "defrag": "nodes/qrm",
}


TAKEN_AWAY = """() => [...document.querySelectorAll('.panel')].filter((one) => one.checkVisibility()).flatMap((one) => {
  const title = one.querySelector('h2').textContent;
  const has = (kind) => one.querySelector(`button[aria-label$="as ${kind}"]`);
  const shown = (what) => [...one.querySelectorAll(what)].some((each) => each.checkVisibility());
  return [
    one.querySelector('.command') ? '' : `${title} shows no command`,
    shown('table') && !has('CSV') ? `${title} has a table without CSV` : '',
    shown('svg[role=img], canvas') && !has('SVG') ? `${title} has a picture without SVG` : '',
  ].filter(Boolean);
})"""
"""What a panel has to offer: the command that tells the same, its tables as CSV, its pictures as SVG."""
TOUR = (PICTURES.parent / "tutorials" / "dashboard.md").read_text()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_view_fits_and_can_be_used_by_everybody(
    browser: Browser, cluster: Cluster, width: int, theme: str, tmp_path: Path
) -> None:
    """axe-core finds nothing serious, nothing is wider than the page; the pictures are those of the documentation."""
    visit = Visit(browser, viewport={"width": width, "height": 900}, color_scheme=theme)
    visit.log_in(cluster.link())
    problems = []
    for name, view in VIEWS.items():
        page = visit.show(view)
        page.wait_for_timeout(1500)
        if view == "whatif":
            page.get_by_role("button", name="Compare the policies").click()
            page.get_by_role("region", name="The policies compared").wait_for()
            page.locator(".charts").scroll_into_view_if_needed()
        if name == "defrag":
            page.get_by_role("region", name="What is gained").wait_for()
            page.get_by_role("heading", name="Defragmentation").evaluate("one => one.scrollIntoView()")
        found = Axe().run(page).response["violations"]
        problems += [
            f"{name}: {one['id']}: {one['help']}: {one['nodes'][0]['html'][:200]}"
            for one in found
            if one["impact"] in ("serious", "critical")
        ]
        problems += [f"{name}: {one}" for one in page.evaluate(TAKEN_AWAY)]
        wider = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        problems += [f"{name}: {wider} pixels wider than the page"] if wider > 0 else []
        picture = f"dashboard-{name}-{width}-{theme}.png"
        page.screenshot(path=(PICTURES if WRITES and picture in TOUR else tmp_path) / picture)
    visit.close()
    assert problems == []
    assert visit.complaints == []


def test_the_plan_to_defragment_is_a_before_and_after(visit: Visit, cluster: Cluster) -> None:
    """The last of this file: the others want the CPUs as they are."""
    page = visit.show("nodes/qrm")
    plan = page.get_by_role("region", name="Defragmentation", exact=True)
    plan.get_by_role("region", name="Who moves").wait_for()
    before, after = (plan.locator(".map").nth(index).locator("[data-lit=yes]") for index in (0, 1))
    visit.until("() => document.querySelectorAll('.two .map')[1].querySelectorAll('[data-lit=yes]').length === 10")
    assert before.count() == 10
    (mover,) = {one.get_attribute("data-owner") for one in before.all()}
    assert {one.get_attribute("data-owner") for one in after.all()} == {mover}
    letters = {one.locator("text").text_content() for one in (*before.all(), *after.all())}
    assert len(letters) == 1  # the same letter on both maps
    gained = plan.get_by_role("region", name="What is gained").inner_text().split("\n")
    assert "free CPUs in one NUMA node\t20\t30" in gained
    with page.expect_download() as saved:
        plan.get_by_role("button", name="Download defrag-after-qrm as SVG").click()
    assert Path(saved.value.path()).read_text().startswith("<svg")
    with page.expect_download() as saved:
        plan.get_by_role("button", name="Download defrag-qrm as CSV").click()
    assert Path(saved.value.path()).read_text().splitlines()[1].startswith(f"{mover},10,")
    assert plan.get_by_role("button", name="Copy: kubeqos defrag qrm --apply").is_visible()
    was = page.evaluate(WHERE, mover)
    cluster.kubeqos("defrag", "qrm", "--apply")
    plan.get_by_text("Nobody need move.").wait_for()
    assert plan.locator(".map").first.is_hidden()
    assert page.evaluate(WHERE, mover) != was
