// What the views share: what is known, how it is asked for, and how names and numbers are written.
import { h } from "/page/preact.js";
import htm from "/page/htm.js";

export const html = htm.bind(h);
export const WHOLE_MS = 30000;  // what changes without an event, as an age, is never older
export const EVERY_MS = 5000;  // so rarely what costs a request of its own is asked for anew between acts
export const SILENT_MS = 8000;  // a scheduler that is heard less is not heard
export const known = { overview: null, nodes: [], names: new Map(), user: "", isOperator: false, at: 0, signedOut: false, error: "" };

const NAMES_AT_ONCE = 100, NAMES_MAX = 5000;
export async function loadNames(ids, anew = false) {  // rows of jobs whose names are not known yet, or of all of them
  if (known.names.size > NAMES_MAX) known.names.clear();
  const unknown = [...new Set(ids)].filter(id => anew || !known.names.has(id));
  for (let at = 0; at < unknown.length; at += NAMES_AT_ONCE) {
    const asked = unknown.slice(at, at + NAMES_AT_ONCE).map(id => `job=${id}`).join("&");
    for (const row of (await get(`/page_rows?limit=${NAMES_AT_ONCE}&${asked}`)).rows) known.names.set(row.id, row);
  }
}

class SignedOut extends Error {}

export async function refused(answer) {  // why an answer is none
  if (answer.status === 401) return new SignedOut();
  const { detail } = await answer.json().catch(() => ({})), first = Array.isArray(detail) ? detail[0]?.message : detail;
  return Object.assign(new Error(first || `it answered ${answer.status}`), { status: answer.status });
}

export function unreachable(error, isLate) {
  if (error instanceof SignedOut) { known.signedOut = true; return error; }
  if (error.status) return error;
  return new Error(isLate ? `no answer within ${SILENT_MS / 1000} s` : "it cannot be reached");
}

async function ask(path, options, isText = false) {
  const control = new AbortController(), timer = setTimeout(() => control.abort(), SILENT_MS);
  try {
    const answer = await fetch(path, { credentials: "same-origin", signal: control.signal, ...options });
    if (!answer.ok) throw await refused(answer);
    return await (isText ? answer.text() : answer.json());
  } catch (error) { throw unreachable(error, control.signal.aborted); } finally { clearTimeout(timer); }
}
export const get = path => ask(path, {});
export const text = path => ask(path, {}, true);
// The scheduler takes changes of a signed-in browser only with a header that no page of another origin can send.
export const change = (method, path, body = {}) => ask(path, { method, body: method === "POST" ? JSON.stringify(body) : undefined, headers: {
  "Content-Type": "application/json", "X-Colane-Page": "1",
  "Idempotency-Key": Array.from(crypto.getRandomValues(new Uint32Array(4)), one => one.toString(36)).join("-") } });

export const here = () => {
  const [path, query] = location.hash.split("?");
  return { path: path || "#/", query: new URLSearchParams(query) };
};

export const middle = (name, most = 28) => {
  const all = [...name];
  return all.length <= most ? name : all.slice(0, most / 2).join("") + "…" + all.slice(1 - most / 2).join("");
};
export const Name = ({ of, most }) => html`<bdi title=${of}>${middle(of, most)}</bdi>`;
export const byName = (a, b) => a.name.localeCompare(b.name, undefined, { numeric: true });
export const count = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;
export const clock = at_s => new Date(at_s * 1000).toLocaleTimeString();
export const moment = at_s => {
  const at = new Date(at_s * 1000);
  return Date.now() - at < 72e6 ? clock(at_s) : at.toLocaleString([], { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });
};
export function lasting(seconds) {
  const s = Math.round(seconds), parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const at = parts.findIndex(([size]) => s >= size);
  if (at < 0) return "0 s";
  const [size, unit] = parts[at], rest = parts[at + 1] ? Math.floor(s % size / parts[at + 1][0]) : 0;
  return `${Math.floor(s / size)} ${unit}${rest ? ` ${rest} ${parts[at + 1][1]}` : ""}`;
}
const NOW_S = () => Date.now() / 1000, day = at_s => new Date(at_s * 1000).toLocaleString([], { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });
export const reserved = node => (node.reservations || []).filter(one => one.to_s > NOW_S());  // what is not over; an older scheduler tells none
export const reservation = one => `${one.name}: ${day(one.from_s)} to ${day(one.to_s)} for ${one.users.join(", ")}`;
export const percent = ratio => ratio > 0 && ratio < 0.01 ? "under 1 %" : `${Math.round(ratio * 100)} %`;
export const short = value => value >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(3)));
export const bytes = size => size >= 999.5e6 ? `${short(size / 1e9)} GB` : size ? `${short(size / 1e6)} MB` : "0 GB";
export function lanesOf(node) {  // the jobs on each of its devices, by index: [lane, jobs] in order; none that is on the host, as in facts/node.py
  const found = new Map(), on = node.jobs.flatMap(job => job.on_host ? [] : job.slots.map(slot => [slot, job]));
  for (const [{ gpu, lane }, job] of on.sort(([a], [b]) => a.lane - b.lane)) {
    const lanes = found.get(gpu) || [], last = lanes.at(-1);
    if (last?.[0] === lane) last[1].push(job); else lanes.push([lane, [job]]);
    found.set(gpu, lanes);
  }
  return found;
}
export const jobLink = (id, word = "") => html`<a class="lk" key=${id} href=${`#/job/${id}`}>${word ? `${word} ${id}` : id}</a>`;
