// Which view is shown, who is logged in, and which time: now, or a moment of the past hour.

import { clusterView } from "./cluster.js";
import { clock, h, link, put, s, say } from "./dom.js";
import { ask, follow } from "./live.js";
import { palette } from "./map.js";
import { nodeView } from "./node.js";
import { podView } from "./pod.js";
import { podsView } from "./pods.js";
import { whatIfView } from "./whatif.js";

const main = document.getElementById("main");
const top = document.getElementById("top");
const time = document.getElementById("time");
const THEMES = ["auto", "light", "dark"];
let session = null;
let ends = () => {};

// ---- Addresses: #/view/…?at=seconds

function address() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").map(decodeURIComponent).filter(Boolean);
  return { parts: parts.length ? parts : ["cluster"], at: new URLSearchParams(query).get("at") ?? "" };
}

function goTo(at) {
  const path = location.hash.split("?")[0] || "#/cluster";
  history.replaceState(null, "", at ? `${path}?at=${at}` : path);
  show(true);
}

// ---- Views

function failed(problem) {
  if (problem.status === 401) return askForLink(problem);
  put(main, h("h1", {}, "Not found"), h("p", { class: "problem", role: "alert" }, problem.message), h("p", {}, link("cluster", "To the cluster")));
}

function show(sameView = false) {
  const { parts, at } = address();
  ends();
  ends = () => {};
  delete document.body.dataset.drawn;
  if (parts[0] === "login") return exchange(parts[1] ?? "");
  if (!session) return start();
  drawTop(parts[0]);
  const follows = (view, drawn) => {
    const stop = follow(view, at, (data) => {
      drawn(data);
      document.body.dataset.drawn = parts.join("/");
    }, failed);
    ends = () => {
      stop();
      drawn.end?.();
    };
  };
  const [kind, one, two] = parts;
  if (kind === "cluster") follows("cluster", clusterView(main));
  else if (kind === "nodes" && one) follows(`nodes/${encodeURIComponent(one)}`, nodeView(main, one, at));
  else if (kind === "pods" && two) follows(`pods/${encodeURIComponent(one)}/${encodeURIComponent(two)}`, podView(main, one, two, at));
  else if (kind === "pods") ends = podsView(main, at, failed);
  else if (kind === "whatif") whatIfView(main);
  else return failed(new Error(`There is no view ${parts.join("/")}.`));
  document.title = `${parts.join(" / ")} · kubeqos`;
  drawTime(at);
  if (!sameView) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
    say(`${parts.join(" ")} is shown`);
  }
}

function drawTop(kind) {
  const tab = (path, title, kinds) => h("li", {}, h("a", { href: `#/${path}`, "aria-current": kinds.includes(kind) ? "page" : null }, title));
  const theme = h("button", { type: "button", class: "small", onclick: nextTheme }, `Theme: ${localStorage.getItem("theme") ?? "auto"}`);
  const leave = async () => {
    await ask("logout", {}).catch(() => {});
    session = null;
    askForLink(null);
  };
  put(top, h("a", { class: "name", href: "#/cluster" }, h("img", { src: "/dashboard/static/icon.svg", alt: "", width: 24, height: 24 }), "kubeqos"),
    h("nav", { "aria-label": "Views" }, h("ul", {}, tab("cluster", "Cluster", ["cluster", "nodes"]), tab("pods", "Pods", ["pods"]), tab("whatif", "What if", ["whatif"]))),
    h("div", { class: "who" }, h("span", {}, session.user), theme, h("button", { type: "button", class: "small", onclick: leave }, "Log out")));
}

// ---- Theme

function nextTheme() {
  const now = localStorage.getItem("theme") ?? "auto";
  const next = THEMES[(THEMES.indexOf(now) + 1) % 3];
  localStorage.setItem("theme", next);
  themed();
  drawTop(address().parts[0]);
  show(true);
  say(`Theme: ${next}`);
}

function themed() {
  document.documentElement.dataset.theme = localStorage.getItem("theme") ?? "auto";
}

// ---- Time

let timeline = null;
let slid = 0;

async function drawTime(at) {
  if (address().parts[0] === "whatif") return put(time);
  try {
    timeline = await ask("timeline");
  } catch {
    return put(time);
  }
  const { first, last } = timeline;
  const range = h("input", { type: "range", id: "moment", min: Math.ceil(first), max: Math.floor(last), step: 1, value: at || Math.floor(last) });
  const told = h("output", { for: "moment" }, at ? `at ${clock(at)}` : "now");
  range.setAttribute("aria-valuetext", told.textContent);
  range.addEventListener("input", () => {
    const chosen = Number(range.value);
    told.textContent = chosen >= Math.floor(last) - 1 ? "now" : `at ${clock(chosen)}`;
    range.setAttribute("aria-valuetext", told.textContent);
    clearTimeout(slid);
    slid = setTimeout(() => goTo(told.textContent === "now" ? "" : chosen), 200);
  });
  const live = h("button", { type: "button", class: at ? "" : "on", "aria-pressed": at ? "false" : "true", onclick: () => goTo("") }, at ? "Back to now" : "Live");
  const focused = document.activeElement?.id === "moment";
  put(time, h("label", { for: "moment" }, "Time"), h("span", { class: "from" }, clock(first)), h("div", { class: "slider" }, marks(timeline), range), told, live);
  document.body.classList.toggle("past", Boolean(at));
  if (focused) range.focus();
}

/** How much changed in each minute, and the warnings as ticks that stand out by their height. */
function marks({ first, last, changes, happenings }) {
  const colours = palette();
  const x = (at) => (100 * (at - first)) / Math.max(1, last - first);
  const most = Math.max(1, ...changes.map(([, count]) => count));
  const bars = changes.map(([at, count]) => s("rect", { x: x(Math.max(at, first)), y: 20 - (14 * count) / most, width: Math.max(0.3, x(first + 60)), height: (14 * count) / most, fill: colours.line }));
  const ticks = happenings.filter((one) => one.warning && one.time >= first).map((one) => s("rect", { x: x(one.time), y: 0, width: 0.3, height: 20, fill: colours.owners[1] }));
  return s("svg", { viewBox: "0 0 100 20", preserveAspectRatio: "none", "aria-hidden": "true" }, ...bars, ...ticks);
}

// ---- Logging in

async function exchange(code) {
  history.replaceState(null, "", "#/cluster"); // before anything else: the code is in no history and no address
  try {
    await ask("login", { code });
    session = null;
    await start();
  } catch (problem) {
    askForLink(problem);
  }
}

async function start() {
  try {
    session = await ask("session");
  } catch (problem) {
    return askForLink(problem);
  }
  show(true); // the focus stays where the browser put it: the first Tab leads to the first link
}

function askForLink(problem) {
  ends();
  session = null;
  put(top, h("span", { class: "name" }, h("img", { src: "/dashboard/static/icon.svg", alt: "", width: 24, height: 24 }), "kubeqos"));
  put(time);
  const given = h("input", { id: "link", type: "password", autocomplete: "off", required: true });
  const onsubmit = (event) => {
    event.preventDefault();
    exchange(given.value.trim().split("/").pop());
  };
  const wrong = problem && problem.message !== "not logged in, or not any more";
  put(main, h("div", { class: "login" }, h("h1", {}, "Log in"),
    wrong && h("p", { class: "problem", role: "alert" }, problem.message, "."),
    h("p", {}, "Open the link that ", h("code", {}, "kubeqos up"), " printed. It works once. For another one:"),
    h("pre", { tabindex: 0 }, h("code", {}, "kubeqos dashboard --link")),
    h("form", { onsubmit }, h("label", { for: "link" }, "Or paste the link here"), given, h("button", { type: "submit" }, "Log in"))));
  document.title = "Log in · kubeqos";
}

themed();
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // its address is not one of a view
  main.focus();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => session && show(true));
window.addEventListener("hashchange", () => show());
setInterval(() => session && !address().at && document.activeElement?.id !== "moment" && drawTime(""), 10000);
show();
