// What a change would do to the jobs that wait and run, or did: asked of the scheduler, which simulates it; to leave ends that.
import { POLICIES } from "/page/verbs.js";
import { here, html, known, lasting, percent, refused, unreachable } from "/page/common.js";

const SINCE = [["", "that wait and run now"], ["1d", "of the last day"], ["7d", "of the last week"], ["yesterday", "since yesterday"]];
const FIGURES = [["mean_wait_s", "Mean wait"], ["p90_wait_s", "9 of 10 wait less"], ["mean_jct_s", "Mean time to end"], ["makespan_s", "All took"]];
const asked = { nodes: "", policy: "", quota: "", share: true, since: "" };
let control = null, progress = null, found = null, problem = "", draw = () => {};

export const wanted = () => "limit=0";
export async function load(rows) { Object.assign(known, { user: rows.user, isOperator: rows.is_operator }); }

function leave() {
  control?.abort();
  control = progress = null;
}
addEventListener("hashchange", () => { if (here().path !== "#/whatif") leave(); });

async function ask(event) {
  event.preventDefault();
  leave();
  const own = control = new AbortController(), query = new URLSearchParams();
  for (const name of ["nodes", "policy", "since"]) if (asked[name].trim()) query.set(name, asked[name].trim());
  for (const one of asked.quota.split(/[\s,]+/).filter(Boolean)) query.append("quota", one);
  if (!asked.share) query.set("share", "false");
  progress = [0, 0];
  found = null;
  problem = "";
  draw();
  try {
    const answer = await fetch(`/whatif?${query}`, { credentials: "same-origin", signal: own.signal });
    if (!answer.ok) throw await refused(answer);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ""; ;) {
      const { done, value } = await reader.read();
      if (done) break;
      const parts = (rest + value).split("\r\n\r\n");
      rest = parts.pop();
      for (const part of parts) if (part.startsWith("data: ")) ({ progress = null, found = null, problem = "" } = JSON.parse(part.slice(6)));
      draw();
    }
    if (!found && !problem) problem = "the scheduler has ended it";
  } catch (error) { if (control === own) problem = unreachable(error, false).message; }
  if (control === own) control = progress = null;
  draw();
}

const signed = ratio => Math.abs(ratio) < 0.005 ? "same" : `${ratio > 0 ? "+" : "−"}${percent(Math.abs(ratio))}`;

function Cell({ row, name, isFirst }) {
  const text = lasting(row.figures[name]);
  if (isFirst) return text;
  const [mean, least, most] = row.differences[name];
  return html`${text} <small>${signed(mean)}${most - least < 0.01 ? "" : `, ${signed(least)} to ${signed(most)}`}</small>`;
}

function Found() {
  return html`<h2>What it would do</h2><ul class="notes">${found.said.map(line => html`<li key=${line}><bdi>${line}</bdi></li>`)}</ul>
    <table class="wi"><thead><tr><th></th>${found.tried.map((row, at) => html`<th class="r" key=${at}><bdi>${row.name}</bdi></th>`)}</tr></thead>
    <tbody>${FIGURES.map(([name, word]) => html`<tr key=${name}><td>${word}</td>${found.tried.map((row, at) => html`<td class="r" key=${at}><${Cell} row=${row} name=${name} isFirst=${!at} /></td>`)}</tr>`)}
      <tr><td>Jobs that end</td>${found.tried.map((row, at) => html`<td class="r" key=${at}>${row.ended}</td>`)}</tr></tbody></table>`;
}

export function View({ redraw }) {
  draw = redraw;
  const field = (name, word, hint, list) => html`<label>${word} <input type="text" maxlength="200" placeholder=${hint} list=${list} value=${asked[name]} onInput=${event => { asked[name] = event.target.value; }} /></label>`;
  return html`<h1>What would it do to the jobs…</h1><p class="lead">The same jobs are simulated as it is, then with the change. That takes up to some minutes of one core, which others have first; to leave this page ends it.</p>
    <form class="ask what" onSubmit=${ask}><label>Jobs <select onChange=${event => { asked.since = event.target.value; }}>${SINCE.map(([value, word]) => html`<option key=${value} value=${value} selected=${value === asked.since}>${word}</option>`)}</select></label>
      ${field("nodes", "Nodes", "+2, -1 or pool:+2")}${field("policy", "Policy", "as it is", "policies")}${field("quota", "Quota", "ann.gpus=4, bob.running=2")}
      <datalist id="policies">${POLICIES.map(name => html`<option key=${name} value=${name} />`)}</datalist>
      <label>Sharing <span><input type="checkbox" checked=${asked.share} onChange=${event => { asked.share = event.target.checked; }} /> as it is, else each job has its GPUs to itself</span></label>
      <p class="acts"><button type="submit" disabled=${control !== null}>Ask</button>${control ? html`<button type="button" onClick=${() => { leave(); redraw(); }}>Stop</button>` : ""}</p></form>
    ${progress ? html`<p role="status">${progress[1] ? html`<progress max=${progress[1]} value=${progress[0]}></progress> ${progress[0]} of ${progress[1]} simulations` : "Reading what has been…"}</p>` : ""}
    ${problem ? html`<p class="lead" role="alert"><span class="ba">✕</span> <bdi>${problem}</bdi></p>` : ""}${found ? html`<${Found} />` : ""}
    <footer>On a terminal: <code>colane whatif --nodes +2</code></footer>`;
}
