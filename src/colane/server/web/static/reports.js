// How the jobs that ended fared, and the last of them.
import { Buttons } from "/page/acts.js";
import { Name, count, get, here, html, jobLink, known, lasting, moment, percent, short } from "/page/common.js";

const DAYS = [1, 7, 28, 90], EVERY_MS = 30000, LAST = 100;
const BAD = new Set(["failed", "out-of-memory", "timed-out"]);
export const chosen = new Map();
let shown = null, loaded = 0, more = [], foreseen = [];

const days = () => DAYS.includes(Number(here().query.get("days"))) ? Number(here().query.get("days")) : 7;

export const wanted = () => "limit=0";

const only = () => here().query.get("state") || "";
const page = first => get(`/usage/ended?${new URLSearchParams({ days: days(), limit: LAST, first, ...only() ? { state: only() } : {} })}`);

export async function load(rows) {
  const key = `${days()} ${only()}`;
  if (shown?.key === key && Date.now() - loaded < EVERY_MS) return;
  const found = await page(0);
  foreseen = (await get("/health")).foreseen || [];
  if (shown?.key !== key || found.count !== shown.count) more = [];
  Object.assign(known, { user: rows.user, isOperator: rows.is_operator });
  shown = { ...found, many: days(), key };
  loaded = Date.now();
}

async function loadMore(redraw) {  // those that ended before the last that is shown
  const { key } = shown, first = shown.jobs.length + more.length, found = await page(first);
  if (shown.key === key) more = [...more, ...found.jobs.filter(job => ![...shown.jobs, ...more].some(one => one.id === job.id))];
  redraw();
}

function Foreseen() {  // what was said of starts and ends, and what came of it, by policy and horizon beside what others would say
  if (!foreseen.length) return "";
  const held = part => part.quotes ? `${percent(part.holds)}` : "";
  return html`<h2>What was foreseen <small>80 % are to hold</small></h2><div class="tw"><table class="fs"><thead><tr><th>Policy</th><th>Method</th><th class="r">Quotes</th><th class="r">Held</th>${foreseen[0].horizons.map(one => html`<th class="r wd" key=${one.said}>${one.said}</th>`)}<th class="r">Score</th><th class="r">Error</th></tr></thead>
    <tbody>${foreseen.map(one => html`<tr key=${`${one.policy} ${one.method}`}><td>${one.policy}</td><td>${one.method === "foreseen" ? html`<b>foreseen</b>` : one.method}</td><td class="r">${one.quotes}</td><td class="r">${percent(one.holds)}</td>
      ${one.horizons.map(part => html`<td class="r wd" key=${part.said} title=${count(part.quotes, "quote")}>${held(part)}</td>`)}<td class="r">${one.score.toFixed(2)}</td><td class="r">${percent(one.median_error)}</td></tr>`)}</tbody></table></div>
    <p class="said">Of quotes of starts, and of ends, the later half, by what their median said. Score: how wide, and ten times what a miss is off; less is better. The first three methods are what others would say.</p>`;
}

const FIGURES = [["waited_s", "Waited in queues", lasting], ["took_s", "From submission to end", lasting], ["slowdown", "That over the time it ran", value => `${short(value)} ×`]];

export function View({ redraw }) {
  if (!shown) return html`<p class="lead">Asking the scheduler…</p>`;
  const { states } = shown, state = only(), rows = shown.key === `${days()} ${state}` ? [...shown.jobs, ...more] : [], all = state ? states[state] || 0 : shown.count, good = states.succeeded || 0;
  const own = rows.filter(job => chosen.has(job.id));
  return html`<div class="top"><h1>${shown.count ? `${count(shown.count, "job")} ended in ${count(shown.many, "day")}, ${good} with success.` : `No job ended in ${count(shown.many, "day")}.`}</h1>
    <span class="acts">${DAYS.map(each => html`<a class=${`btn${each === shown.many ? " on" : ""}`} key=${each} aria-current=${each === shown.many ? "true" : null} href=${`#/reports?days=${each}`}>${each} d</a>`)}</span></div>
    ${shown.left_out ? html`<p class="lead">These are the last ${shown.count}; ${shown.left_out_count} more ended before: choose fewer days.</p>` : ""}
    ${shown.count ? html`<div class="tw"><table class="ff"><thead><tr><th></th><th class="r">Median</th><th class="r">9 of 10 below</th><th class="r">Most</th></tr></thead><tbody>${FIGURES.map(([key, word, say]) => html`<tr key=${key}><td>${word}</td>
      ${["median", "p90", "most"].map(part => html`<td class="r" key=${part}>${shown[key] ? say(shown[key][part]) : "unknown"}</td>`)}</tr>`)}</tbody></table></div>
    <p class="said">${lasting(shown.lost_s)} of run time had to be made again; jobs were stopped for others ${count(shown.preemptions, "time")}.</p>
    <h2>How they ended</h2><ul class="look">${Object.entries(states).sort((a, b) => b[1] - a[1]).map(([each, many]) => html`<li key=${each}><b>${many}</b><a class="lk" aria-current=${each === state ? "true" : null} href=${`#/reports?${new URLSearchParams({ days: shown.many, state: each === state ? "" : each })}`}>${
      BAD.has(each) ? html`<span class="ba">✕</span> ` : ""}${each}</a></li>`)}</ul>
    <h2>The last of them <small>${state ? `${state}: ${rows.length} of ${all}` : rows.length < all ? `${rows.length} of ${all}` : all}${state ? html` · <a class="lk" href=${`#/reports?days=${shown.many}`}>all states</a>` : ""}</small></h2>
    <div class="tw"><table class="en"><thead><tr><th></th><th>Job</th><th>Name</th><th class="wd">User</th><th class="wd">Ended</th><th>How</th><th class="r">Waited</th><th class="r">Took</th><th>Why</th></tr></thead><tbody>${rows.map(job => html`<tr key=${job.id} class=${chosen.has(job.id) ? "mine" : ""}>
      <td>${job.user === known.user ? html`<input type="checkbox" aria-label=${`Job ${job.id}`} checked=${chosen.has(job.id)} onChange=${() => { if (!chosen.delete(job.id)) chosen.set(job.id, job); redraw(); }} />` : ""}</td>
      <td>${jobLink(job.id)}</td><td><${Name} of=${job.name} /></td><td class="wd"><${Name} of=${job.user} most=${14} /></td><td class="wd">${moment(job.end_s)}</td><td>${BAD.has(job.state) ? html`<span class="ba">✕ ${job.state}</span>` : job.state}</td>
      <td class="r">${job.waited_s === null ? "never ran" : lasting(job.waited_s)}</td><td class="r">${lasting(job.took_s)}</td><td class="jl"><bdi>${job.reason}</bdi></td></tr>`)}</tbody></table></div>
    ${rows.length && rows.length < all ? html`<p class="said"><button type="button" onClick=${() => loadMore(redraw)}>${Math.min(LAST, all - rows.length)} more</button></p>` : ""}
    ${own.length ? html`<div class="bulk"><b>${count(own.length, "job")} chosen</b><${Buttons} jobs=${own} /><button type="button" onClick=${() => { chosen.clear(); redraw(); }}>Choose none</button></div>` : ""}` : ""}
    <${Foreseen} />
    <p class="lead small">With figures and plots, compared by a label: <code>colane report --label NAME</code>.</p>
    <footer>As JSON: <a class="lk" href=${`/usage/ended?days=${shown.many}`}>ended jobs</a></footer>`;
}
