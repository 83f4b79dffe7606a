// One job: where it stands and why, how it went, what it used of what it asked for.
import { EVERY_MS, WHOLE_MS, Name, bytes, count, get, here, html, jobLink, known, lasting, moment, short, text } from "/page/common.js";
import { Buttons } from "/page/acts.js";
import { Charts, places } from "/page/charts.js";

const SAMPLES_MS = 10000, JUDGED_MS = 30000, STORY = 100, CO_RUNNERS = 20;
const NAMES = { gpu: "GPU", "gpu-memory": "GPU memory", cores: "Cores", "host-memory": "Host memory", time: "Time" };
const LOG_BYTES = 16384, LOG_LINES = 40;
let shown = {};

const idNow = () => Number(here().path.slice("#/job/".length));
export const wanted = () => Number.isSafeInteger(idNow()) && idNow() > 0 ? `job=${idNow()}` : "limit=0";
const stands = row => row && `${row.state} ${row.suspended} ${row.reason} ${row.gpus}`;

export async function load(now, isAct) {
  const id = idNow(), [row] = now.rows, { user, is_operator: isOperator } = now;
  const found = shown.id === id ? shown : { id, asked: 0, sampled: 0, judged: 0 };
  Object.assign(known, { user, isOperator });
  if (!Number.isSafeInteger(id) || id < 1) { shown = { id, missing: true }; return; }
  try {
    if (isAct || stands(row) !== stands(found.row) || Date.now() - found.asked > (row === found.row ? WHOLE_MS : EVERY_MS)) {
      [found.job, found.why] = await Promise.all([get(`/job/${id}`), get(`/job/${id}/why`)]);
      found.asked = Date.now();
      found.row = row;
    }
    if (Date.now() - found.sampled > SAMPLES_MS) {
      found.samples = await get(`/samples/jobs/${id}`);
      found.sampled = Date.now();
    }
    if (Date.now() - found.judged > JUDGED_MS) {
      [found.efficiency, found.coRunners] = await Promise.all([get(`/job/${id}/efficiency`), get(`/job/${id}/co_runners?limit=${CO_RUNNERS}`)]);
      found.judged = Date.now();
    }
    shown = found;
  } catch (error) {
    if (error.status !== 404) throw error;
    shown = { id, missing: true };
  }
}

function Progress({ job: { facts, progress, saved_s: saved_at, end_s: ended } }) {
  const { steps, steps_total: total, done_ratio: done, left_s: left, now_steps_per_s: now, in_turn_steps_per_s: inTurn, is_length_guessed: isGuess } = facts;
  if (!progress && !steps) return "";
  const saved = progress?.steps_saved;
  const words = [done === null ? "" : html`<b>${isGuess ? "about " : ""}${short(done * 100)} %</b>`, `${steps.toLocaleString()}${total ? ` of ${total.toLocaleString()}` : ""} steps`,
    left === null ? "" : html`<b>${lasting(left)} left</b>${BY[facts.left_by] || ""}`, now === null ? "" : `${short(now)} steps/s${inTurn && Math.abs(inTurn - now) > 0.01 * now ? `, ${short(inTurn)} in its turns` : ""}`,
    saved_at ? `last saved ${moment(saved_at)}${saved && total ? ", where the mark is" : ""}` : ended ? "" : "it has not saved its state"].filter(Boolean);
  return html`${total ? html`<div class="bar" role="progressbar" aria-valuemin="0" aria-valuemax=${total} aria-valuenow=${steps}>
      <i style=${{ width: `${done * 100}%` }}></i>${saved ? html`<u style=${{ left: `${saved / total * 100}%` }}></u>` : ""}</div>` : ""}
    <p class="said">${words.map((word, at) => html`${at ? " · " : ""}${word}`)}</p>`;
}
const BY = { family: ", by how long others of its family ran", limit: ", by its time limit" };

const expected = told => !told ? "" : told.p50_s === null ? told.sentence : html`${told.sentence} <span class="q">said ${lasting(Math.max(0, Date.now() / 1000 - told.said_s))} ago, length ${told.basis}</span>`;

function Facts({ job }) {
  const { sharing } = job, coRunners = sharing ? [["takes turns with", sharing.lane_mates], ["beside", sharing.others]].filter(([, ids]) => ids.length) : [];
  const rows = [["User", html`<${Name} of=${job.user || "none"} />`],
    ["Place", job.facts.gpus.length ? job.facts.gpus.join(", ") : job.facts.nodes.length ? `${job.facts.nodes.join(", ")}, ${job.on_host_bytes === null ? "no GPU" : "on the host"}` : "none now"],
    ["Co-runners", coRunners.length ? coRunners.map(([word, ids], at) => html`${at ? "; " : ""}${word} ${ids.map((id, i) => html`${i ? ", " : ""}${jobLink(id)}`)}`)
      : job.facts.gpus.length ? "no other job on its devices" : "none"],
    ["Asks for", `${count(job.needs.gpus, "GPU")}${job.needs.gpu_memory_bytes ? `, ${bytes(job.needs.gpu_memory_bytes)} each` : ""}`],
    ["Speed", job.facts.speed_ratio === null ? "" : html`${job.facts.speed_ratio.toFixed(2)} of its speed alone: <bdi>${job.rate.sentence}</bdi>`],
    ["Starts", expected(job.facts.expected_start)], ["Ends", expected(job.facts.expected_end)],
    ["Time", TIMES.filter(([key]) => job.facts.time_spent[key] > 0).map(([key, word]) => `${lasting(job.facts.time_spent[key])} ${word}`).join(", ")],
    ["Answers", answers(job)],
    ["Command", job.command ? html`<code>${spoken(job.command)}</code>` : ""], ["Directory", job.workdir ? html`<code>${job.workdir}</code>` : ""],
    ["Limit", job.needs.time_limit_s ? `${lasting(job.needs.time_limit_s)}${job.facts.limit_left_s === null ? "" : `, ${lasting(job.facts.limit_left_s)} left`}` : job.command ? "none" : ""],
    ["Output", outputOf(job) ? html`<code>${outputOf(job)}</code>` : ""],
    ["Attempt", `${job.attempt}${job.failures ? `, ${count(job.failures, "failure")}` : ""}`],
    ["Submitted", moment(job.submit_s)], ["Ended", job.end_s ? moment(job.end_s) : ""]];
  return html`<dl>${rows.filter(([, value]) => value).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

const CHARS = 400;
const isBatch = words => words?.[1] === "-c" && words[3] === "sbatch";  // as Slurm's verbs submit a script: its files, what runs it, and itself
const outputOf = ({ command, output }) => output || (isBatch(command) ? [...new Set([command[5], command[6]].filter(Boolean))].join(", ") : "");
function spoken(words) {  // a command as a shell reads it
  const all = isBatch(words) ? `${words[9]}, a batch script: ${words[10].split("\n").find(line => line.trim() && !line.trim().startsWith("#"))?.trim() || ""}${words.slice(11).map(word => ` ${word}`).join("")}` : words.map(word => /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`).join(" ");
  return all.length > CHARS ? `${all.slice(0, CHARS)}…` : all;
}

const TIMES = ["queueing", "launching", "running", "paused", "checkpointing", "untold"].map(word => [`${word}_s`, word]);
const ms = value => value >= 1 ? `${short(value)} s` : `${short(value * 1000)} ms`;
function answers({ progress, needs: { latency_s: most } }) {
  if (!progress?.answers) return "";
  const parts = [["half", progress.latency_p50_s], ["95 %", progress.latency_p95_s], ["99 %", progress.latency_p99_s]].filter(([, took]) => took !== null);
  const kept = most === null || progress.latency_p99_s === null ? "" : progress.latency_p99_s > most ? `, above its objective of ${ms(most)}` : `, within its objective of ${ms(most)}`;
  return `${progress.answers.toLocaleString()}; of the last ${parts.map(([part, took]) => `${part} within ${ms(took)}`).join(", ")}${kept}`;
}

const amount = (value, unit) => value === null ? "unknown" : unit === "bytes" ? bytes(value) : unit === "s" ? lasting(value) : short(value);
function Used({ efficiency: { rows, notes, is_short: isShort } }) {
  return html`<h2>Used of asked ${isShort ? html`<small>it has run less than a minute</small>` : ""}</h2>
    ${rows.length ? "" : html`<p class="lead">Nothing is known yet.</p>`}
    <div class="used">${rows.map(one => html`<div key=${one.what}><span>${NAMES[one.what] || one.what}</span><span>${amount(one.used, one.unit)}</span>
      <span>${one.asked === null ? "" : `of ${amount(one.asked, one.unit)}`}</span>${one.ratio === null ? html`<span></span>` : html`<span class="bar thin"><i style=${{ width: `${Math.min(1, one.ratio) * 100}%` }}></i></span>`}
      <span>${one.ratio === null ? "" : `${Math.round(one.ratio * 100)} %`}</span></div>`)}</div>
    ${notes.length ? html`<ul class="notes">${notes.map(one => html`<li key=${one.what}><bdi>${one.sentence}</bdi>${one.flag ? html` <code>${one.flag}</code>` : ""}</li>`)}</ul>` : ""}`;
}

function Times({ spans, from, until, own }) {  // from when to when, on an axis that all rows share
  const ratio = at => Math.min(1, Math.max(0, (at - from) / (until - from || 1))) * 100;
  return html`<span class=${own ? "track own" : "track"}>${spans.map(one => {
    const left = ratio(one.since_s), end = ratio(one.until_s ?? until);
    return html`<i key=${`${one.since_s} ${one.gpus}`} style=${{ left: `${Math.min(left, 99)}%`, width: `${Math.max(1, end - left)}%` }}
      title=${`${places(one.gpus)}: ${moment(one.since_s)} to ${one.until_s === null ? "now" : moment(one.until_s)}`}></i>`;
  })}</span>`;
}

const took = (spans, until) => lasting(spans.reduce((sum, one) => sum + (one.until_s ?? until) - one.since_s, 0));
function CoRunners({ coRunners: { jobs, hidden, left_out_count: leftOut, since_s: from, until_s: until }, spans }) {
  if (from === null || !spans.length) return "";
  const end = Math.max(until, ...spans.map(one => one.until_s ?? 0)), axis = { from, until: end };
  const others = [hidden ? `${count(hidden, "job")} of other users, of which you are not told` : "", leftOut ? `${count(leftOut, "job")} came later, and ${leftOut === 1 ? "is" : "are"} not shown` : ""].filter(Boolean);
  return html`<h2>Co-runners <small>jobs that shared its devices, from when to when</small></h2>
    ${jobs.length || hidden ? html`<div class="co-runners"><div><span>this job</span><${Times} ...${axis} spans=${spans} own /><span>${took(spans, end)}</span></div>
    ${jobs.map(one => html`<div key=${one.id}><span>${jobLink(one.id)} <${Name} of=${one.name} most=${16} /></span><${Times} ...${axis} spans=${one.spans} />
      <span title=${one.spans.map(span => `${places(span.gpus)}: ${moment(span.since_s)} to ${span.until_s === null ? "now" : moment(span.until_s)}`).join("; ")}>${took(one.spans, end)}</span></div>`)}
    <div class="ends"><span></span><span><time>${moment(from)}</time><time>${spans.at(-1).until_s === null ? "now" : moment(end)}</time></span><span></span></div></div>`
    : html`<p class="lead">It has had its devices to itself.</p>`}${others.length ? html`<p class="said">${others.join("; ")}</p>` : ""}`;
}

async function readLog(of, redraw) {  // when it is asked for: the node's agent has to read it
  of.log = "Asking its node…";
  redraw();
  try {
    const lines = (await text(`/job/${of.id}/log?offset=${-LOG_BYTES}`)).split("\n");
    // Colours and what a progress bar has overwritten are not text.
    of.log = lines.slice(-LOG_LINES - 1).map(line => line.replace(/\x1b\[[0-9;?]*[ -/]*[@-~]/g, "").replace(/\r+$/, "").split("\r").at(-1)
      .replace(/[\x00-\x08\x0b-\x1f\x7f]/g, "")).join("\n").trimEnd() || "Nothing is in it yet.";
  } catch (error) { of.log = `It cannot be read: ${error.message}.`; }
  redraw();
  requestAnimationFrame(() => document.querySelector("pre")?.scrollTo(0, 1e6));  // after it was drawn: to its end
}

// The figures beside the lines are those told everywhere, not those of the last interval.
const withFacts = ({ facts }, samples) => ({ ...samples, now: samples.now && { ...samples.now, steps_per_s: facts.now_steps_per_s, share_ratio: facts.share_got_ratio ?? samples.now.share_ratio } });

export function View({ redraw }) {
  const { id, job, why, samples, efficiency, coRunners, missing } = shown;
  if (missing) return html`<h1>There is no such job.</h1><p class="lead">Jobs that ended long ago are forgotten.</p>`;
  if (!job || id !== idNow()) return html`<p class="lead">Asking the scheduler…</p>`;
  const { now } = why, ratio = now.length ? job.facts.speed_ratio : null, began = job.first_start_s !== null, story = job.story.slice(-STORY), left = job.story_left_out + job.story.length - story.length;
  const spans = (job.attempts || []).flatMap(one => one.spans);
  const row = { id, name: job.name, state: job.state, may: shown.row && job.end_s === null ? shown.row.may : job.may };
  return html`<div class="top"><h1>${job.id} <bdi>${job.name}</bdi> <span class="pill">${job.facts.word}</span></h1><${Buttons} jobs=${[row]} /></div>
    <p class="lead">${job.user && job.user === known.user ? "Yours. " : ""}${ratio === null ? now[0]?.startsWith("on ") ? "Runs " : "" : html`Runs at <b>${ratio.toFixed(2)} of its speed alone</b>, `}<bdi>${now[0] || why.sentence}</bdi></p>
    ${now.length ? html`<ul class="notes">${now.slice(1).map(one => html`<li key=${one}><bdi>${one}</bdi></li>`)}<li>last change: <bdi>${why.sentence}</bdi></li></ul>` : ""}
    <${Progress} job=${job} />
    <div class="two"><div><${Facts} job=${job} />${began ? html`<h2>Over time <small>numbers: the story's sentences · a gap: no sample</small></h2>
      <${Charts} samples=${withFacts(job, samples)} story=${story} spans=${spans} /><${CoRunners} coRunners=${coRunners} spans=${spans} />` : ""}${job.attempt && job.command !== undefined ? html`<h2>Log <small>its last ${LOG_LINES} lines · <a class="lk" href=${`/job/${id}/log`}>all of it</a></small></h2>
      ${shown.log ? html`<pre tabindex="0" aria-label="Log">${shown.log}</pre>` : ""}
      <button type="button" onClick=${() => readLog(shown, redraw)}>${shown.log ? "Read it again" : "Read it"}</button>` : ""}</div>
    <div><h2>Story ${left ? html`<small>${left} before are not shown</small>` : ""}</h2>
      <ol class="story">${story.map((one, at) => html`<li key=${at}><time>${moment(one.at_s)}</time><i>${at + 1}</i><bdi>${one.sentence || one.state}</bdi></li>`)}</ol>
      ${began ? html`<${Used} efficiency=${efficiency} />` : ""}</div></div>
    <footer>As JSON: <a class="lk" href=${`/job/${id}`}>job</a>, <a class="lk" href=${`/job/${id}/why`}>why</a>, <a class="lk" href=${
      `/samples/jobs/${id}`}>samples</a>, <a class="lk" href=${`/job/${id}/efficiency`}>efficiency</a>, <a class="lk" href=${`/job/${id}/co_runners`}>co-runners</a></footer>`;
}
