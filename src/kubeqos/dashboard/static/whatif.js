// What if: where the pods of a manifest would go, how a day goes, and how two policies differ on it. Nothing is changed.

import { badge, copyable, csvButton, h, link, panel, put, savable, say, svgButton, table } from "./dom.js";
import { chart } from "./chart.js";
import { ask } from "./live.js";

const POD = `apiVersion: v1
kind: Pod
metadata:
  name: what-if
spec:
  containers:
  - name: main
    image: app
    resources:
      requests: {cpu: "4", memory: 8Gi}
      limits: {cpu: "4", memory: 8Gi}
`;
const SCENARIO = `apiVersion: kubeqos.io/v1alpha1
kind: Scenario
duration: 4h
nodes:
- {name: node, count: 4, template: {allocatable: {cpu: "16", memory: 64Gi}}}
workloads:
- name: batch
  arrivals: {perHour: 50}
  runs: {between: [5m, 20m]}
  template: {spec: {containers: [{name: main, resources: {requests: {cpu: "3", memory: 4Gi}}}]}}
- name: large
  arrivals: {every: 10m}
  runs: 15m
  template: {spec: {priority: 100, containers: [{name: main, resources: {requests: {cpu: "12", memory: 16Gi}}}]}}
`;
const PACK = `apiVersion: kubeqos.io/v1alpha1
kind: SchedulerConfiguration
profiles:
- {schedulerName: default-scheduler, weights: {resources: 5, balance: 0, mostAllocated: true}}
`;
const COLUMNS = [
  ["Pod", (one) => one.pod],
  ["Answer", (one) => (one.fits ? badge("fits", "good") : badge("does not fit", "bad")), (one) => (one.fits ? "fits" : "does not fit")],
  ["Would run on", (one) => (one.node ? link(`nodes/${one.node}`, one.node) : ""), (one) => one.node],
  ["Would evict", (one) => one.evicts.join(", ")],
  ["Because", (one) => one.because],
];

const REASON_COLUMNS = [["Policy", (one) => one.policy], ["Pods", (one) => String(one.pods)], ["Because", (one) => one.because]];

/** A text that is typed, pasted, or read from a file of this machine. */
function field(id, label, value, rows) {
  const area = h("textarea", { id, rows, spellcheck: "false", autocomplete: "off" });
  area.value = value;
  const file = h("input", { type: "file", "aria-label": `${label}: open a file`, accept: ".yaml,.yml,.json" });
  file.addEventListener("change", async () => {
    if (file.files.length) area.value = await file.files[0].text();
  });
  return [area, h("div", { class: "field" }, h("label", { for: id }, label), area, file)];
}

function drawn(curves, room) {
  const drawing = chart(curves, Math.max(300, Math.min(640, room)));
  return h("div", { class: "savable" }, drawing, svgButton(curves.title.replaceAll(" ", "-"), () => drawing));
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);
const where = (nodes) => Object.entries(nodes).slice(0, 8).map(([node, count]) => (count > 1 ? `${node} × ${count}` : node)).join(", ") + (Object.keys(nodes).length > 8 ? ", …" : "");
const workloadColumns = (columns) => [["Policy", (one) => one.policy], ...columns.map((title, index) => [capital(title), (one) => one.cells[index]]), ["Where", (one) => where(one.nodes)]];

/** A form whose answer comes below it. */
function asked(button, answer, question) {
  return async (event) => {
    event.preventDefault();
    button.disabled = true;
    put(answer, h("p", { class: "none" }, "Rehearsing …"));
    try {
      put(answer, await question());
      say("The answer is there.");
    } catch (problem) {
      put(answer, h("p", { class: "problem", role: "alert" }, problem.message, problem.where && ` (${problem.where})`, problem.remedy && h("br"), problem.remedy));
    }
    button.disabled = false;
  };
}

export function whatIfView(place) {
  const [manifest, manifestField] = field("manifest", "Manifest of pods or workloads", POD, 14);
  const [scenario, scenarioField] = field("scenario", "Scenario", SCENARIO, 16);
  const [first, firstField] = field("first", "Policy “spread” (empty: the default)", "", 6);
  const [second, secondField] = field("second", "Policy “pack”", PACK, 6);
  const [fitted, compared] = [h("div", { class: "answer" }), h("div", { class: "answer" })];
  const fit = h("button", { type: "submit" }, "Where would it go?");
  const compare = h("button", { type: "submit" }, "Compare the policies");
  const play = h("button", { type: "button" }, "Play the day once");
  let answers = [];
  let rows = [];
  let names = [];
  const columns = () => [["Measure", (row) => row[0]], ...names.map((name, index) => [name, (row) => row[index + 1]])];
  const onFit = asked(fit, fitted, async () => {
    answers = (await ask("whatif", { manifest: manifest.value })).answers;
    return table("Where the pods would go", COLUMNS, answers);
  });
  const played = (caption, policies) => async () => {
    const told = await ask("compare", { scenario: scenario.value, policies: policies() });
    [rows, names] = [told.rows, told.policies];
    return [h("div", { class: "charts" }, told.charts.map((one) => drawn(one, compared.clientWidth))), table(caption, columns(), rows),
      h("h3", {}, "What became of each workload"), savable("workloads", "Workloads", workloadColumns(told.columns), told.workloads),
      told.reasons.length > 0 && [h("h3", {}, "Who waited, was refused or had to leave, and why"), savable("reasons", "Reasons", REASON_COLUMNS, told.reasons)], copyable(told.commands.comparison)];
  };
  const take = h("button", { type: "button" }, "Take this cluster");
  take.addEventListener("click", asked(take, compared, async () => {
    const told = await ask("scenario");
    scenario.value = told.scenario;
    return [h("p", {}, "The scenario above is this cluster, with everything that runs where it is now. Add nodes or workloads to it, and play it."),
      told.notCarried.length > 0 && h("ul", {}, told.notCarried.map((one) => h("li", {}, `Not carried: ${one}`))), copyable(told.commands.scenario)];
  }));
  const onCompare = asked(compare, compared, played("The policies compared", () => ({ spread: first.value, pack: second.value })));
  play.addEventListener("click", asked(play, compared, played("The day", () => ({ spread: first.value }))));
  put(place, h("h1", {}, "What if"), h("p", {}, "Rehearsed on a copy. Nothing is changed."),
    h("div", { class: "grid" },
      panel("A manifest on this cluster", { command: "kubeqos simulate fit -f manifest.yaml -o wide", wide: true, tools: [csvButton("what-if", COLUMNS, () => answers)] }, h("form", { onsubmit: onFit }, manifestField, fit), fitted),
      panel("Two policies on the same day", { command: "kubeqos simulate compare scenario.yaml --policy spread.yaml --policy pack.yaml", wide: true, tools: [csvButton("comparison", () => columns(), () => rows)] },
        h("form", { onsubmit: onCompare, class: "two" }, scenarioField, h("div", {}, firstField, secondField), h("div", { class: "controls" }, compare, play, take)), compared)));
}
