// What can be done to jobs, and the question before it: what it costs, by number.
import { change, count, get, html, jobLink, known, lasting } from "/page/common.js";
import { OF_NODES, ROWS } from "/page/verbs.js";

const AT_ONCE = 6, TOLD = 8;
const VERBS = {
  ...Object.fromEntries(ROWS.map(row => [row.verb, { ...row, act: id => change(row.method, `/job/${id}${row.suffix}`) }])),
  again: { label: "Submit again", past: "submitted again", costs: false, act: async id => change("POST", "/job", await get(`/job/${id}/request`)) },
};
let asked = null, told = { changed() {}, draw() {} };

export const connect = hooks => { told = hooks; };
const waits = job => job.state === "queued";

const label = (verb, jobs) => jobs.every(waits) && VERBS[verb].waiting_label || VERBS[verb].label;

async function ask(verb, jobs) {
  const mine = asked = { verb, jobs, costs: null, done: 0, busy: false, refused: [], error: "" };
  told.draw();
  try {
    const costs = [];
    if (VERBS[verb].costs !== false) for (let at = 0; at < jobs.length; at += AT_ONCE) costs.push(...await Promise.all(
      jobs.slice(at, at + AT_ONCE).map(job => get(`/job/${job.id}/cost`).catch(error => {
        if (error.status === 404) return null;  // it has ended since
        throw error;
      }))));
    mine.costs = costs.filter(Boolean);
  } catch (error) { mine.error = `What it costs is not known: ${error.message}.`; }
  told.draw();
}

async function carryOut() {
  const mine = asked;
  mine.busy = true;
  for (const job of mine.jobs) {
    try { mine.made = (await VERBS[mine.verb].act(job.id)).id; } catch (error) { mine.refused.push({ id: job.id, message: error.message }); }
    mine.done += 1;
    told.draw();
  }
  mine.busy = false;
  if (!mine.refused.length && asked === mine) close();
  if (mine.verb === "again" && mine.made && mine.jobs.length === 1) location.hash = `#/job/${mine.made}`;
  told.draw();
  told.changed(mine);
}

function close() {  // by its own method, so that the focus goes back to where it was
  document.querySelector("dialog[open]")?.close();
  asked = null;
  told.draw();
}

function Cost({ verb, jobs, costs }) {
  const it = jobs.length === 1, sum = key => costs.reduce((all, one) => all + one[key], 0);
  const lost_s = sum("lost_s"), gpus = sum("gpus"), run = jobs.filter(job => !waits(job)).length;
  const helps = [...new Set(costs.flatMap(one => one.helps))].filter(id => !jobs.some(job => job.id === id));
  const isAll = costs.every(one => one.helps.length === one.helped), helped = isAll ? helps.length : Math.max(helps.length, ...costs.map(one => one.helped));  // the first of them are named
  const { loses } = VERBS[verb], saved = costs.filter(one => one.saved_s !== null).length;
  const since = saved === run ? `since ${it ? "it" : "they"} last saved` : saved ? "since the last save, or the start where there is none" : `since ${it ? "it" : "they"} started, as nothing was saved`;
  const lines = {
    suspend: [run ? `Nothing is lost: ${it ? "it waits" : "those that run wait"} at the next step and ${it ? "keeps its" : "keep their"} memory.` : `${it ? "It does" : "They do"} not start until released.`],
    again: [`${it ? "It is" : "They are"} submitted once more, as ${it ? "it was" : "they were"}, in the same directory. Nothing is lost.`,
      html`Environment variables are not kept: ${it ? html`<code>colane again ${jobs[0].id}</code> takes` : html`<code>colane again</code> takes`} those of a shell along.`],
    resume: [`Nothing is lost: ${it ? "it goes" : "they go"} on, or ${it ? "waits" : "wait"} for a place.`],
  }[verb] || (run ? [html`<b>${lasting(lost_s)}</b> of run time ${loses}: ${since}.`] : ["Nothing is lost: no job of these has started."]);
  if (loses) {
    lines.push(gpus ? `${count(gpus, "device")} ${gpus === 1 ? "comes" : "come"} free.` : "No device comes free.");
    if (helps.length) lines.push(html`${helps.length === 1 ? "Job" : "Jobs"} that ${helps.length === 1 ? "waits" : "wait"} for ${it ? "it" : "them"}: ${
      helps.slice(0, TOLD).map((id, at) => html`${at ? ", " : ""}${jobLink(id)}`)}${helped > TOLD ? ` and ${it || isAll ? "" : "at least "}${helped - Math.min(TOLD, helps.length)} more` : ""}.`);
  }
  return html`<ul class="notes">${lines.map((line, at) => html`<li key=${at}>${line}</li>`)}</ul>`;
}

export function Question() {
  if (!asked) return "";
  if (asked.node) return html`<${NodeQuestion} />`;
  const { verb, jobs, costs, done, busy, refused, error } = asked, word = label(verb, jobs), one = jobs.length === 1;
  const over = !busy && done > 0;
  return html`<dialog aria-labelledby="question" onClose=${() => { if (asked && !asked.busy) { asked = null; told.draw(); } }}
      onCancel=${event => { if (busy) event.preventDefault(); }}>
    <h2 id="question">${over ? `${jobs.length - refused.length} of ${count(jobs.length, "job")} ${VERBS[verb].past}` : html`${word} ${
      one ? html`job ${jobs[0].id} <bdi>${jobs[0].name}</bdi>` : count(jobs.length, "job")}?`}</h2>
    ${over ? html`<ul class="notes">${refused.slice(0, TOLD).map(each => html`<li key=${each.id}>${each.id}: <bdi>${each.message}</bdi></li>`)}
        ${refused.length > TOLD ? html`<li>${refused.length - TOLD} more</li>` : ""}</ul>`
      : costs ? html`<${Cost} verb=${verb} jobs=${jobs} costs=${costs} />` : html`<p class="lead">${error || "Asking what it costs…"}</p>`}
    <p class="acts">${over ? html`<button type="button" onClick=${close}>Close</button>` : html`
      <button type="button" autofocus disabled=${busy} onClick=${close}>${one ? "Keep it as it is" : "Keep them as they are"}</button>
      <button type="button" class=${verb === "cancel" ? "no" : ""} disabled=${busy || !costs && !error} onClick=${carryOut}>${
        busy ? `${done} of ${jobs.length}` : `${word} ${one ? "job " + jobs[0].id : count(jobs.length, "job")}`}</button>`}</p></dialog>`;
}

export function Buttons({ jobs }) {  // each for those of the jobs of which it can be done
  const of = verb => jobs.filter(job => job.may.includes(verb));
  return html`<span class="acts">${Object.keys(VERBS).reverse().map(verb => [verb, of(verb)]).filter(([, some]) => some.length).map(([verb, some]) =>
    html`<button type="button" key=${verb} class=${verb === "cancel" ? "no" : ""} onClick=${() => ask(verb, some)}>${label(verb, some)}${
      some.length < jobs.length ? ` ${some.length}` : ""}…</button>`)}</span>`;
}

// -- of nodes

const DEADLINES = [["", "none: jobs finish, or go elsewhere"], ["10m", "in 10 min"], ["1h", "in 1 h"], ["8h", "in 8 h"], ["1d", "in a day"]];

async function askOfNode(name, isDrained) {
  const mine = asked = { node: name, isDrained, jobs: [], costs: null, busy: false, error: "", reason: "", deadline: "" };
  told.draw();
  try {
    const ids = (await get(`/node/${encodeURIComponent(name)}`)).jobs.map(job => job.id), costs = [];
    if (!isDrained) for (let at = 0; at < ids.length; at += AT_ONCE) costs.push(...await Promise.all(ids.slice(at, at + AT_ONCE).map(id =>
      get(`/job/${id}/cost`).catch(error => { if (error.status === 404) return null; throw error; }))));
    mine.costs = costs.filter(Boolean);
  } catch (error) { mine.error = `What it costs is not known: ${error.message}.`; }
  told.draw();
}

async function changeNode() {
  const mine = asked, row = OF_NODES[mine.isDrained ? "undrain" : "drain"], path = row.path.replace("{name}", encodeURIComponent(mine.node));
  mine.busy = true;
  mine.error = "";
  told.draw();
  try {
    await (mine.isDrained ? change(row.method, path) : change(row.method, path, { reason: mine.reason, ...mine.deadline ? { deadline_s: mine.deadline } : {} }));
    mine.busy = false;
    if (asked === mine) close();
  } catch (error) { Object.assign(mine, { busy: false, error: `It was refused: ${error.message}.` }); }
  told.draw();
  told.changed({ jobs: [], refused: [] });
}

function NodeQuestion() {
  const { node, isDrained, costs, busy, error } = asked, { label } = OF_NODES[isDrained ? "undrain" : "drain"], lost_s = (costs || []).reduce((sum, one) => sum + one.lost_s, 0);
  return html`<dialog aria-labelledby="question" onClose=${() => { if (asked && !asked.busy) { asked = null; told.draw(); } }} onCancel=${event => { if (busy) event.preventDefault(); }}>
    <h2 id="question">${label} <bdi>${node}</bdi>?</h2>
    ${error ? html`<p class="lead">${error}</p>` : costs ? html`<ul class="notes">${isDrained ? html`<li>It takes jobs again.</li>` : html`<li>It takes no new jobs.</li>
      <li>${costs.length ? html`${count(costs.length, "job")} ${costs.length === 1 ? "runs" : "run"} there, and ${costs.length === 1 ? "goes" : "go"} elsewhere or ${costs.length === 1 ? "finishes" : "finish"}.` : "No job runs there."}</li>
      ${costs.length ? html`<li>Stopped now, they would lose <b>${lasting(lost_s)}</b> of run time; those that are there at a deadline are stopped.</li>` : ""}`}</ul>` : html`<p class="lead">Asking what it costs…</p>`}
    ${isDrained ? "" : html`<p class="ask"><label>Why <input type="text" maxlength="200" value=${asked.reason} onInput=${event => { asked.reason = event.target.value; }} /></label>
      <label>Deadline <select onChange=${event => { asked.deadline = event.target.value; }}>${DEADLINES.map(([value, word]) => html`<option key=${value} value=${value}>${word}</option>`)}</select></label></p>`}
    <p class="acts"><button type="button" autofocus disabled=${busy} onClick=${close}>Keep it as it is</button>
      <button type="button" disabled=${busy || !costs && !error} onClick=${changeNode}>${label} it</button></p></dialog>`;
}

export function NodeButton({ node }) {  // for operators
  return known.isOperator ? html`<button type="button" onClick=${() => askOfNode(node.name, Boolean(node.drain))}>${OF_NODES[node.drain ? "undrain" : "drain"].label}…</button>` : "";
}

export function show() {  // after it was drawn
  const dialog = document.querySelector("dialog");
  if (dialog && !dialog.open) dialog.showModal();
}
