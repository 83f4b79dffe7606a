// The queue: why jobs wait, and the rows of all jobs, of which only those that are seen are asked for and drawn.
import { Buttons } from "/page/acts.js";
import { Name, count, here, html, jobLink, known, lasting, short } from "/page/common.js";

const ROW = 29, ROW_NARROW = 90, SPARE = 80;
const narrow = matchMedia("(max-width:760px)");
export const chosen = new Map();  // rows by id, also of those that are not seen now
let part = null, asked = "";

function seen() {  // rows that are seen
  const height = narrow.matches ? ROW_NARROW : ROW, box = document.getElementById("rows");
  const top = box ? -box.getBoundingClientRect().top : 0;
  return { height, first: Math.max(0, Math.floor(top / height) - 5), many: Math.ceil(innerHeight / height) + 10 };
}

function filter() {
  const { query } = here(), chosen = new URLSearchParams();
  for (const key of ["text", "why", "mine", "sort", "down"]) if (query.get(key)) chosen.set(key, query.get(key));
  return chosen;
}

export function isMissing() {
  const { first, many } = seen();
  return part && (first < part.first || Math.min(first + many, part.count) > part.first + part.rows.length);
}

export function wanted() {
  const { first, many } = seen(), query = filter(), isOther = asked !== `${query}` || !part || isMissing();
  asked = `${query}`;
  query.set("first", isOther ? Math.max(0, first - SPARE) : part.first);
  query.set("limit", many + 2 * SPARE);
  query.set("overview", "true");
  return `${query}`;
}

export async function load(now) {
  Object.assign(known, { overview: now.overview, user: now.user, isOperator: now.is_operator });
  part = now;
  for (const row of part.rows) if (chosen.has(row.id)) chosen.set(row.id, row);
}

const choose = row => { if (!chosen.delete(row.id)) chosen.set(row.id, row); };

const Part = ({ word, children }) => html`<span role="cell"><small class="nw">${word} </small>${children}</span>`;  // its word where the head of its column is not shown

function Going({ job: { gpus, nodes, reason, run, state } }) {  // place and pace of a job that runs
  const where = gpus.length ? shortened(gpus) : `${nodes.join(", ")}${state === "paused" ? ", on the host" : ""}`, share = run?.turn_share_ratio ?? null, asked = run?.share_asked_ratio ?? null;
  if (!run) return html`<span role="cell" title=${where || reason}>${where || reason}</span>`;  // of an array how its elements stand
  const told = run.slowdown_predicted, seen = run.slowdown_measured;
  return html`<span class="rn"><span role="cell" title=${gpus.join(", ") || where}>${where}</span>
    <span role="cell">${run.done_ratio === null ? html`<span class="q">no end known</span>` : html`<span class="pb"><i style=${{ width: `${run.done_ratio * 100}%` }}></i></span> ${(run.done_ratio * 100).toFixed(run.done_ratio < 0.1 ? 1 : 0)} %`}</span>
    <${Part} word="left">${run.left_s === null ? html`<span class="q">–</span>` : lasting(run.left_s)}<//>
    <${Part} word="">${run.now_steps_per_s === null ? html`<span class="q">no steps</span>` : `${short(run.now_steps_per_s)} /s`}<//>
    <${Part} word="speed">${run.speed_ratio === null ? html`<span class="q">–</span>` : html`<b>${run.speed_ratio.toFixed(2)}</b>`}<//>
    <${Part} word="turns">${share === null ? html`<span class="q">all</span>` : `${share.toFixed(2)}${asked === null ? "" : ` of ${asked.toFixed(2)}`}`}<//>
    <${Part} word="slowdown">${told === null && seen === null ? html`<span class="q">alone</span>` : `${orDash(told)} / ${orDash(seen)} ×`}<//></span>`;
}
const orDash = value => value === null ? "–" : value.toFixed(2);

function shortened(gpus) {  // n1/0, n1/1, n1/2 -> n1/0–2
  const by = new Map();
  for (const gpu of gpus) {
    const at = gpu.lastIndexOf("/"), node = gpu.slice(0, at), index = Number(gpu.slice(at + 1)), parts = by.get(node) || [];
    if (parts.at(-1)?.[1] === index - 1) parts.at(-1)[1] = index; else parts.push([index, index]);
    by.set(node, parts);
  }
  return [...by].map(([node, parts]) => `${node}/${parts.map(([from, to]) => from === to ? from : `${from}–${to}`).join(",")}`).join(", ");
}

const Waiting = ({ job }) => html`<span class="wn"><span role="cell"><small class="nw">asks for </small>${job.asks === "0" ? "no device" : `${job.asks.replaceAll(",", ", ")} ${job.asks === "1" ? "device" : "devices"}`}</span>
  <span role="cell"><small class="nw">waits </small>${lasting(Math.max(0, known.at / 1000 - job.since_s))}</span><span role="cell" title=${[job.starts, job.reason].filter(Boolean).join("\n")}>${job.starts ? html`${job.starts.startsWith("start ") ? html`<span class="q">${job.starts}</span>` : html`<b>${job.starts}</b>`} · ` : ""}${job.reason}</span></span>`;

function Rows({ redraw }) {
  const { height, first, many } = seen(), from = Math.max(first, part.first);
  return html`<div id="rows" class="rows" role="rowgroup" style=${{ height: `${part.count * height}px` }}>${
    part.rows.slice(from - part.first, first + many - part.first).map((job, at) => html`
    <div role="row" aria-rowindex=${from + at + 2} class=${`row${chosen.has(job.id) ? " own" : ""}${job.user && job.user === known.user ? " my" : ""}`} key=${job.id} style=${{ top: `${(from + at) * height}px` }}><span role="cell">${job.is_own ? html`<input type="checkbox"
      aria-label=${`Job ${job.id}`} checked=${chosen.has(job.id)} onChange=${() => { choose(job); redraw(); }} />` : ""}</span><span role="cell">${jobLink(job.id)}</span><span role="cell"><a href=${`#/job/${job.id}`}><${Name} of=${job.name} /></a></span>
    <span role="cell"><${Name} of=${job.user} most=${14} /></span><span role="cell">${job.word}</span>
    ${job.state === "queued" ? html`<${Waiting} job=${job} />` : html`<${Going} job=${job} />`}</div>`)}</div>`;
}

function Head() {  // of the kind of rows that is seen first
  const { height } = seen(), box = document.getElementById("rows"), at = box ? Math.max(0, Math.floor(-box.getBoundingClientRect().top / height)) : 0;
  const waits = (part.rows[at - part.first] || part.rows[0])?.state === "queued";
  return html`<div class="hd" role="row" aria-rowindex="1"><span role="columnheader" aria-label="Choose"></span><${Column} by="id" word="Job" /><${Column} by="name" word="Name" /><${Column} by="user" word="User" /><${Column} by="state" word="State" />${
    waits ? html`<span class="wn"><${Column} by="asks" word="Asks for" /><${Column} by="since" word="Waits" /><${Column} word="When it starts, why it waits" /></span>`
    : html`<span class="rn"><${Column} word="Place" /><${Column} by="done" word="Done" /><${Column} by="left" word="Left" /><${Column} by="steps" word="Steps" /><${Column} by="speed" word="Speed" /><${Column} word="Turns" title="share of turns that it gets, of that which it asked for" /><${Column} word="Slowdown" title="step time now over step time alone, as told before and as seen" /></span>`}</div>`;
}

function Column({ by, word, title }) {  // its head sorts by it, and once more the other way round
  const query = filter(), isBy = by && (query.get("sort") || "id") === by, isDown = Boolean(query.get("down"));
  return html`<span role="columnheader" title=${title} aria-sort=${isBy ? isDown ? "descending" : "ascending" : null}>${by ? html`<a href=${go({ sort: by === "id" ? "" : by, down: isBy && !isDown ? "true" : "" })}>${word}${
    isBy && (by !== "id" || isDown) ? isDown ? " ▾" : " ▴" : ""}</a>` : word}</span>`;
}

function go(changes) {
  const query = filter();
  for (const [key, value] of Object.entries(changes)) if (value) query.set(key, value); else query.delete(key);
  return `#/queue${`${query}` ? `?${query}` : ""}`;
}

function Bulk({ redraw }) {
  const jobs = [...chosen.values()];
  return jobs.length ? html`<div class="bulk"><b>${count(jobs.length, "job")} chosen</b>
    <${Buttons} jobs=${jobs} />
    <button type="button" onClick=${() => { chosen.clear(); redraw(); }}>Choose none</button></div>` : "";
}

export function View({ redraw }) {
  if (!part) return html`<p class="lead">Asking the scheduler…</p>`;
  const { overview: o } = known, query = filter(), isFiltered = ["text", "why", "mine"].some(key => query.get(key));
  return html`<h1>${count(o.waiting, "job")} ${o.waiting === 1 ? "waits" : "wait"}, ${o.running} ${o.running === 1 ? "runs" : "run"}.</h1>
    ${o.why_waiting.length ? html`<h2>Why they wait</h2><ul class="look">${o.why_waiting.map(one =>
      html`<li key=${one.why}><b class="n2">${one.count}</b><span class="pb rb"><i style=${{ width: `${one.count / o.why_waiting[0].count * 100}%` }}></i></span><span><a class="lk" href=${go({ why: one.why })}>${one.why}</a>: <bdi>${one.sentence}</bdi></span>
      <span class="to">${one.jobs[0] ? jobLink(one.jobs[0], one.count > 1 ? "first: job" : "job") : ""}</span></li>`)}</ul>` : ""}
    <h2>Jobs <small>${isFiltered ? html`${part.count} by this filter · <a class="lk" href="#/queue">all</a>` : part.count} · speed: 1.00 is alone with what was asked · blue edge: yours</small></h2>
    <div class="find"><a class=${`btn${query.get("mine") ? " on" : ""}`} aria-current=${query.get("mine") ? "true" : null} href=${go({ mine: query.get("mine") ? "" : "true" })}>Mine</a>
    <input type="search" aria-label="Id, name, user or reason" placeholder="Id, name, user or reason" value=${query.get("text") || ""}
      onInput=${event => location.replace(go({ text: event.target.value }))} /></div>
    ${part.count ? html`<div role="table" aria-label="Jobs" aria-rowcount=${part.count + 1}><${Head} /><${Rows} redraw=${redraw} /></div>`
      : html`<p class="lead">${isFiltered ? "No job is like this." : html`No job: <code>colane submit -- python train.py</code>`}</p>`}
    <${Bulk} redraw=${redraw} />
    <footer>As JSON: <a class="lk" href="/listing">listing</a></footer>`;
}
