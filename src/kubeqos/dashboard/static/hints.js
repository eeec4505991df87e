// Hints of NUMA placement as a small matrix: who offered which NUMA nodes for what, and what the merge made of it.

import { h, table } from "./dom.js";

const numa = (set) => (set === "anywhere" ? "anywhere" : `NUMA ${set}`);
const wide = (set) => (set === "anywhere" ? Infinity : set.split(",").reduce((sum, part) => { const [from, to = from] = part.split("-").map(Number); return sum + to - from + 1; }, 0));

/** The merges of the last admission that had any, oldest first. */
export function merges(decisions) {
  return decisions.filter((one) => one.type === "NodeAdmission" && one.hints?.length).at(-1)?.hints ?? [];
}

/** One row for each resource of each merge, for a file. */
export const HINT_COLUMNS = [
  ["Containers", (one) => one.containers.join(" ")],
  ["Resource", (one) => one.resource],
  ["Offered by", (one) => one.by],
  ["Prefers", (one) => one.preferred.join(" or ")],
  ["Possible", (one) => one.possible.join(" or ")],
  ["Merged to", (one) => one.result],
];

export const hintRows = (found) => found.flatMap((merge) => (merge.offers ?? []).map((offer) => ({
  preferred: [], possible: [], ...offer, containers: merge.containers, result: merge.byResource?.[offer.resource] ?? merge.result,
})));

/** The matrix of one merge: a row for each resource, a column for each set of NUMA nodes, the result below. */
export function matrix(merge) {
  const offers = (merge.offers ?? []).map((offer) => ({ preferred: [], possible: [], ...offer }));
  const offered = new Set([...offers.flatMap((offer) => [...offer.preferred, ...offer.possible]), merge.result]);
  const sets = [...offered].sort((one, other) => wide(one) - wide(other) || one.localeCompare(other, undefined, { numeric: true }));
  const rows = [...offers, { resource: "merged", by: `policy ${merge.policy}`, merged: true }];
  const cell = (row, set) => {
    if (row.merged) return set === merge.result ? h("b", {}, merge.admitted === false ? "✘ refused" : "✔ chosen") : "";
    const own = merge.byResource?.[row.resource] === set ? " ✔" : "";
    if (row.preferred.includes(set)) return `● prefers${own}`;
    return row.possible.includes(set) ? `○ possible${own}` : own;
  };
  const rest = (row) => {
    if (row.merged) return merge.preferred ? "preferred by all" : (merge.forced ?? []).join("; ") || "not preferred by all";
    if (row.indifferent) return "no preference";
    if (!row.preferred.length && !row.possible.length) return "nowhere";
    return row.more ? `and ${row.more} wider sets` : "";
  };
  const columns = [["Resource", (row) => (row.merged ? h("b", {}, "merged") : row.resource)], ["Offered by", (row) => row.by],
    ...sets.map((set) => [numa(set), (row) => cell(row, set)]), ["Remark", rest]];
  return table(`NUMA hints for ${merge.containers.join(", ")}`, columns, rows);
}
