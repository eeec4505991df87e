// The API: questions, and views that follow the cluster or stand at a past time.

export const BASE = "/dashboard/api/v1";

export class Problem extends Error {
  constructor(status, told) {
    super(told.error ?? `the server answered ${status}`);
    this.status = status;
    this.remedy = told.remedy ?? "";
    this.where = told.where ?? "";
  }
}

export async function ask(path, body) {
  const how = body === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(`${BASE}/${path}`, how);
  if (answer.status === 204) return null;
  const told = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Problem(answer.status, told);
  return told;
}

/** Put what changed into a view: members as a whole, tables by row. */
export function applied(data, change) {
  const next = { ...data, ...change.members };
  for (const [name, { set, drop }] of Object.entries(change.tables)) {
    next[name] = { ...next[name], ...set };
    for (const key of drop) delete next[name][key];
  }
  return next;
}

/**
 * Follow a view: `drawn(data)` at most once per frame, `failed(problem)` when it cannot be told any more.
 * With a past time it is read once. Returns what ends it.
 */
export function follow(view, at, drawn, failed) {
  if (at) {
    let ended = false;
    ask(`${view}${view.includes("?") ? "&" : "?"}at=${at}`).then((data) => ended || drawn(data), (problem) => ended || failed(problem));
    return () => (ended = true);
  }
  const source = new EventSource(`${BASE}/stream?view=${encodeURIComponent(view)}`);
  let data = null;
  let frame = 0;
  const draw = () => {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      drawn(data);
    });
  };
  const end = () => {
    source.close();
    cancelAnimationFrame(frame);
  };
  source.addEventListener("view", (event) => {
    data = JSON.parse(event.data);
    draw();
  });
  source.addEventListener("change", (event) => {
    data = applied(data, JSON.parse(event.data));
    draw();
  });
  source.addEventListener("problem", (event) => {
    end();
    failed(new Problem(404, JSON.parse(event.data)));
  });
  source.addEventListener("closed", () => {
    end();
    failed(new Problem(401, { error: "the session has ended" }));
  });
  source.addEventListener("error", () => {
    if (source.readyState === EventSource.CLOSED) ask(view).then(() => follow(view, at, drawn, failed), failed);
  });
  return end;
}
