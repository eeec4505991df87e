// What if: where the pods of a manifest would go, how a day goes, and how two policies differ on it. Nothing is changed.

import { badge, copyable, csvButton, h, link, panel, put, say, svgButton, table } from "./dom.js";
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
  template: {spec: {containers: [{name: main, resources: {requests: {cpu: "12", memory: 16Gi}}}]}}
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

function field(id, label, value, rows) {
  const area = h("textarea", { id, rows, spellcheck: "false", autocomplete: "off" });
  area.value = value;
  return [area, h("div", { class: "field" }, h("label", { for: id }, label), area)];
}

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
    return [h("div", { class: "charts" }, told.charts.map((one) => h("div", {}, chart(one)))), table(caption, columns(), rows), copyable(told.commands.comparison)];
  };
  const onCompare = asked(compare, compared, played("The policies compared", () => ({ spread: first.value, pack: second.value })));
  play.addEventListener("click", asked(play, compared, played("The day", () => ({ spread: first.value }))));
  put(place, h("h1", {}, "What if"), h("p", {}, "Rehearsed on a copy. Nothing is changed."),
    h("div", { class: "grid" },
      panel("A manifest on this cluster", { command: "kubeqos simulate fit -f manifest.yaml -o wide", wide: true, tools: [csvButton("what-if", COLUMNS, () => answers)] }, h("form", { onsubmit: onFit }, manifestField, fit), fitted),
      panel("Two policies on the same day", { command: "kubeqos simulate compare scenario.yaml --policy spread.yaml --policy pack.yaml", wide: true, tools: [csvButton("comparison", () => columns(), () => rows), svgButton("comparison", () => compared.querySelector("svg"))] },
        h("form", { onsubmit: onCompare, class: "two" }, scenarioField, h("div", {}, firstField, secondField), h("div", { class: "controls" }, compare, play)), compared)));
}
