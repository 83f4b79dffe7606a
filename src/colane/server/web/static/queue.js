// The queue: why jobs wait, and the rows of all jobs, of which only those that are seen are asked for and drawn.
import { Buttons } from "/page/acts.js";
import { WHOLE_MS, Name, count, get, here, html, jobLink, known } from "/page/common.js";

const ROW = 29, ROW_NARROW = 90, SPARE = 80;
const narrow = matchMedia("(max-width:760px)");
export const chosen = new Map();  // rows by id, also of those that are not seen now
let part = null, asked = "", whole = 0;

function wanted() {  // rows that are seen
  const height = narrow.matches ? ROW_NARROW : ROW, box = document.getElementById("rows");
  const top = box ? -box.getBoundingClientRect().top : 0;
  return { height, first: Math.max(0, Math.floor(top / height) - 5), many: Math.ceil(innerHeight / height) + 10 };
}

function filter() {
  const { query } = here(), chosen = new URLSearchParams();
  for (const key of ["text", "why"]) if (query.get(key)) chosen.set(key, query.get(key));
  return chosen;
}

export function isMissing() {
  const { first, many } = wanted();
  return part && (first < part.first || Math.min(first + many, part.count) > part.first + part.rows.length);
}

export async function load() {
  const { first, many } = wanted(), query = filter(), asking = `${query}`;
  if (asked !== asking || !part || isMissing()) {
    query.set("first", Math.max(0, first - SPARE));
    whole = 0;
  } else query.set("first", part.first);
  query.set("limit", many + 2 * SPARE);
  query.set("overview", "true");
  if (Date.now() - whole < WHOLE_MS) query.set("seen", part.event);
  const found = await get(`/page_rows?${query}`);
  if (!found.rows) return;
  known.overview = found.overview;
  known.user = found.user;
  part = found;
  for (const row of part.rows) if (chosen.has(row.id)) chosen.set(row.id, row);
  asked = asking;  // not what the address asks for by now
  whole = Date.now();
}

const choose = row => { if (!chosen.delete(row.id)) chosen.set(row.id, row); };

function Rows({ redraw }) {
  const { height, first, many } = wanted(), from = Math.max(first, part.first);
  return html`<div id="rows" class="rows" style=${{ height: `${part.count * height}px` }}>${
    part.rows.slice(from - part.first, first + many - part.first).map((job, at) => html`
    <div class=${chosen.has(job.id) ? "row own" : "row"} key=${job.id} style=${{ top: `${(from + at) * height}px` }}><span>${job.is_own ? html`<input type="checkbox"
      aria-label=${`Job ${job.id}`} checked=${chosen.has(job.id)} onChange=${() => { choose(job); redraw(); }} />` : ""}</span><span>${jobLink(job.id)}</span><span><a href=${`#/job/${job.id}`}><${Name} of=${job.name} /></a></span>
    <span><${Name} of=${job.user} most=${14} /></span><span>${job.suspended ? "suspended" : job.state}</span>
    <span title=${job.reason}>${job.reason || job.gpus.join(", ")}</span></div>`)}</div>`;
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
  const { overview: o } = known, query = filter();
  return html`<h1>${count(o.waiting, "job")} ${o.waiting === 1 ? "waits" : "wait"}, ${o.running} ${o.running === 1 ? "runs" : "run"}.</h1>
    ${o.why_waiting.length ? html`<h2>Why they wait</h2><ul class="look">${o.why_waiting.map(one =>
      html`<li key=${one.why}><b>${one.count}</b><span><a class="lk" href=${go({ why: one.why })}>${one.why}</a>: <bdi>${one.sentence}</bdi></span>
      <span class="to">${one.jobs[0] ? jobLink(one.jobs[0], one.count > 1 ? "first: job" : "job") : ""}</span></li>`)}</ul>` : ""}
    <h2>Jobs <small>${`${query}` ? html`${part.count} by this filter · <a class="lk" href="#/queue">all</a>` : part.count}</small></h2>
    <input type="search" aria-label="Id, name, user or reason" placeholder="Id, name, user or reason" value=${query.get("text") || ""}
      onInput=${event => location.replace(go({ text: event.target.value }))} />
    ${part.count ? html`<div class="hd"><span></span><span>Job</span><span>Name</span><span>User</span><span>State</span><span>Place, or why it waits</span></div><${Rows} redraw=${redraw} />`
      : html`<p class="lead">${`${query}` ? "No job is like this." : html`No job: <code>colane submit -- python train.py</code>`}</p>`}
    <${Bulk} redraw=${redraw} />
    <footer>As JSON: <a class="lk" href="/listing">listing</a></footer>`;
}
