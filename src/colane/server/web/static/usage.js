// What users had of devices by day, what they used of what they asked for, and where their waiting went.
import { Name, count, get, here, html, jobLink, known, lasting, short } from "/page/common.js";
import { Spark } from "/page/charts.js";

const DAYS = [7, 28, 90], EVERY_MS = 60000, HIGH = 140, LEFT = 46, NARROW_DAYS = 14, USERS = 50, WHYS = 8, LOW = 0.25;
const COLUMNS = [["gpu", "GPU"], ["gpu-memory", "GPU memory"], ["cores", "Cores"], ["host-memory", "Host memory"], ["time", "Time"]];
let shown = null, loaded = 0;

const days = () => DAYS.includes(Number(here().query.get("days"))) ? Number(here().query.get("days")) : 28;
const dayName = s => new Date(s * 1000).toLocaleDateString([], { month: "short", day: "numeric", timeZone: "UTC" });
const hours = s => s >= 36000 ? `${Math.round(s / 3600).toLocaleString()}` : short(s / 3600);

export const wanted = () => "limit=0&overview=true";

export async function load(rows) {
  const many = days();
  if (shown?.many === many && Date.now() - loaded < EVERY_MS) return;
  const now_s = Date.now() / 1000, since = now_s - now_s % 86400 - (many - 1) * 86400;
  const [users, by, used, waited, shared, budgets] = await Promise.all([get(`/usage?since_s=${since}`), get(`/usage/days?days=${many}`), get(`/usage/used?days=${many}`), get(`/usage/waiting?days=${many}`), get("/usage/shared"), get("/usage/budgets")]);
  Object.assign(known, { user: rows.user, isOperator: rows.is_operator, overview: rows.overview });
  shown = { many, since, users, by, used: new Map(used.map(one => [one.user, one])), waited, shared, budgets };
  loaded = Date.now();
}

function round(value) {  // up to 1, 2 or 5 times a power of ten
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map(each => each * size).find(each => each >= value);
}

function Bars({ first, many }) {
  const wide = Math.max(280, (document.querySelector("main")?.clientWidth || innerWidth) - (innerWidth > 760 ? 140 : 32)), { by } = shown, sums = Array.from({ length: many }, () => [0, 0, 0]);
  for (const one of by) {
    const at = Math.round((one.start_s - first) / 86400);
    if (at < 0 || at >= many) continue;
    sums[at][one.user === known.user ? 0 : 1] += one.gpu_s;
    sums[at][2] += one.lost_gpu_s;
  }
  const all = known.overview.devices.total * 86400, most = Math.max(1, ...sums.map(([own, others]) => own + others)), top = all && most > all / 4 ? Math.max(all, most) : round(most * 1.05 / 3600) * 3600, hasLost = sums.some(([, , lost]) => lost);
  const step = (wide - LEFT) / many, y = s => 8 + HIGH - s / top * HIGH, every = Math.ceil(many / Math.max(2, wide / 80));
  return html`<div class="tw"><svg width=${wide} height=${HIGH + 30} role="img" aria-label=${`Device hours by day from ${dayName(first)}: ${hours(sums.reduce((sum, [own]) => sum + own, 0))} of yours, ${hours(sums.reduce((sum, [, others]) => sum + others, 0))} of others`}>
    ${[0, 0.5, 1].map(part => html`<path class="gr" d=${`M${LEFT} ${y(top * part)}H${wide}`} /><text x=${LEFT - 6} y=${y(top * part) + 4} text-anchor="end">${hours(top * part)}</text>`)}
    ${sums.map(([own, others, lost], at) => html`<g><title>${`${dayName(first + at * 86400)}: ${hours(own)} device hours of yours, ${hours(others)} of others${lost ? `; ${hours(lost)} had to be made again` : ""}`}</title>
      ${own ? html`<rect class="fa" x=${LEFT + at * step + 1} width=${Math.max(1, step - 2)} y=${y(own)} height=${Math.max(1, y(0) - y(own))} />` : ""}
      ${others ? html`<rect class="ot" x=${LEFT + at * step + 1} width=${Math.max(1, step - 2)} y=${y(own + others)} height=${Math.max(1, y(own) - y(own + others) - (own ? 1 : 0))} />` : ""}
      ${lost && own + others ? html`<rect class="lo" x=${LEFT + at * step + 1} width=${Math.max(1, step - 2)} y=${y(own + others)} height=${Math.max(2, y(0) - y(Math.min(lost, own + others)))} />` : ""}</g>
      ${at % every === 0 ? html`<text x=${LEFT + at * step} y=${HIGH + 24}>${dayName(first + at * 86400)}</text>` : ""}`)}
  </svg></div><p class="key"><span><i class="fa"></i>yours</span><span><i class="ot"></i>others'</span>${hasLost ? html`<span><i class="lo"></i>▲ of these, made again</span>` : ""}${all ? html`<span>${known.overview.devices.total === 1 ? "the device" : `all ${known.overview.devices.total} devices`}: ${hours(all)} hours a day</span>` : ""}</p>`;
}

function perDay(user, first, many) {
  const sums = Array(many).fill(0);
  for (const one of shown.by) if (one.user === user) sums[Math.round((one.start_s - first) / 86400)] += one.gpu_s;
  return sums;
}

function Shared() {  // what the night has worked out of the day before: in words for whoever looks, and by user
  if (!shown.shared.length) return "";
  const [{ start_s, users }] = shown.shared, own = users.find(one => one.user === known.user), day = new Date(start_s * 1000).toLocaleDateString([], { month: "short", day: "numeric" });
  const alone = one => `${short(one.alone_h[0])} h${one.alone_h[2] - one.alone_h[1] < 0.05 ? "" : ` (${short(one.alone_h[1])} to ${short(one.alone_h[2])})`}`;
  return html`<h2>What sharing did for you <small>${day}, worked out in the night</small></h2>
    <p class="said">${own ? html`Your ${count(own.jobs, "job")} had ${short(own.gpu_h)} GPU hours and took ${short(own.took_h)} h from submission to end; each alone on its GPUs in FIFO they would have taken ${alone(own)}. ${own.slowed ? html`${own.slowed === 1 ? "One was" : `${own.slowed} were`} slowed: ${
      own.slowed_jobs.map((one, at) => html`${at ? ", " : ""}${jobLink(one.job)} ${one.ratio.toFixed(2)} ×`)}${own.slowed > own.slowed_jobs.length ? ` and ${own.slowed - own.slowed_jobs.length} more` : ""}.` : "None was slowed by more than 5 %."}` : "No job of yours came and ended on that day."}</p>
    <table class="sh"><thead><tr><th>User</th><th class="r wd">Jobs</th><th class="r">GPU hours</th><th class="r">Took</th><th class="r">Alone in FIFO</th><th class="r">Slowed</th></tr></thead><tbody>${users.map(one => html`<tr key=${one.user} class=${one.user === known.user ? "mine" : ""}>
      <td>${one.user === "all" ? html`<b>all</b>` : html`<${Name} of=${one.user} most=${14} />`}</td><td class="r wd">${one.jobs}</td><td class="r">${short(one.gpu_h)}</td><td class="r">${short(one.took_h)} h</td><td class="r">${alone(one)}</td><td class="r">${one.slowed ? `${one.slowed}, to ${one.slowed_ratio.toFixed(2)} ×` : "0"}</td></tr>`)}</tbody></table>`;
}

export function View() {
  if (!shown) return html`<p class="lead">Asking the scheduler…</p>`;
  const { users, used, waited, since, budgets } = shown, narrow = innerWidth <= 760, many = narrow ? Math.min(NARROW_DAYS, shown.many) : shown.many, first = since + (shown.many - many) * 86400;
  const by = new Map(), again = new Map();
  for (const one of shown.by) {
    by.set(one.user, (by.get(one.user) || 0) + one.gpu_s);
    again.set(one.user, (again.get(one.user) || 0) + one.lost_gpu_s);
  }
  const total = [...by.values()].reduce((sum, one) => sum + one, 0), own = by.get(known.user) || 0, mine = used.get(known.user), waits = waited.filter(one => one.user === known.user), waitsAll = waits.reduce((sum, one) => sum + one.waited_s, 0);
  const rows = users.filter(one => one.jobs || one.gpu_s || one.running || one.waiting).sort((a, b) => (by.get(b.user) || 0) - (by.get(a.user) || 0)), busy = users.find(one => one.user === known.user)?.gpu_busy_ratio;
  return html`<div class="top"><h1>${own ? html`You used ${hours(own)} device hours in ${shown.many} days, ${Math.round(own / total * 100)} % of all.${busy === null || busy === undefined ? "" : ` In ${Math.round((1 - busy) * 100)} % of them the devices did nothing.`}`
      : `Of ${hours(total)} device hours in ${shown.many} days none was yours.`}</h1>
    <span class="acts">${DAYS.map(each => html`<a class=${`btn${each === shown.many ? " on" : ""}`} key=${each} aria-current=${each === shown.many ? "true" : null} href=${`#/usage?days=${each}`}>${each} d</a>`)}</span></div>
    <h2>Device hours by day <small>UTC</small></h2>${total ? html`<${Bars} first=${first} many=${many} />` : html`<p class="lead">No job held a device in these days.</p>`}
    ${budgets.length ? html`<h2>Budgets <small>device hours of this month, UTC, which ends ${dayName(budgets[0].until_s - 1)} · once used up, no further job under it starts</small></h2><div class="tw"><table><tbody>${budgets.slice(0, USERS).map(one => html`<tr key=${one.name}><td><${Name} of=${one.name} /></td>
      <td><span class="pb lg"><i style=${{ width: `${one.gpu_s ? Math.min(1, one.used_gpu_s / one.gpu_s) * 100 : 100}%` }}></i></span></td><td class=${one.used_gpu_s >= one.gpu_s ? "wa" : ""}>${one.used_gpu_s >= one.gpu_s ? "▲ " : ""}${hours(one.used_gpu_s)} of ${hours(one.gpu_s)} h used</td></tr>`)}</tbody></table></div>${budgets.length > USERS ? html`<p class="lead">${budgets.length - USERS} more: <code>colane usage</code></p>` : ""}` : ""}
    <h2>By user <small>▲ below ${LOW * 100} % of what was asked · jobs that ended in these days, and those that run</small></h2>
    ${rows.length ? html`<div class="tw"><table class="us"><thead><tr><th>User</th><th class="r">Device hours</th><th class="wd">Part of all</th><th class="wd">By day</th><th class="r wd">Ended</th><th class="r wd">Failed</th><th class="r wd">Made again</th><th class="r wd">Run / wait</th>
      ${COLUMNS.map(([key, word]) => html`<th class="r" key=${key}>${word}</th>`)}</tr></thead><tbody>${rows.slice(0, USERS).map(one => {
        const ratios = used.get(one.user)?.ratios || {}, had = by.get(one.user) || 0;
        return html`<tr key=${one.user} class=${one.user === known.user && known.user ? "mine" : ""}><td><b>${one.user ? html`<${Name} of=${one.user} most=${20} />` : "no user"}</b></td><td class="r">${hours(had)} h</td>
          <td class="wd"><span class="pb"><i style=${{ width: `${total ? had / total * 100 : 0}%` }}></i></span> ${total ? Math.round(had / total * 100) : 0} %</td><td class="wd"><${Spark} values=${perDay(one.user, since, shown.many)} label=${`Device seconds of ${one.user} by day`} wide=${84} /></td>
          <td class="r wd">${one.jobs}</td><td class="r wd">${one.failed}</td><td class="r wd">${hours(again.get(one.user) || 0)} h</td><td class="r wd">${one.running} / ${one.waiting}</td>
          ${COLUMNS.map(([key]) => html`<td class=${`r${ratios[key] < LOW ? " wa" : ""}`} key=${key}>${ratios[key] === undefined ? html`<span class="q" title="unknown">${narrow ? "–" : "unknown"}</span>` : `${ratios[key] < LOW ? "▲ " : ""}${Math.round(ratios[key] * 100)} %`}</td>`)}</tr>`;
      })}</tbody></table></div>` : html`<p class="lead">No job yet: <code>colane submit -- python train.py</code></p>`}
    ${rows.length > USERS ? html`<p class="lead">${rows.length - USERS} users more: <code>colane usage</code></p>` : ""}
    <div class="half"><div><h2>What would help you most</h2>${mine?.notes.length ? html`<ol class="notes">${mine.notes.map(one => html`<li key=${`${one.job} ${one.what}`}>${jobLink(one.job)} <b><${Name} of=${one.name} /></b>${one.jobs > 1 ? ` and ${one.jobs - 1} like it` : ""}: <bdi>${one.sentence}</bdi>${one.flag ? html` <code>${one.flag}</code>` : ""}</li>`)}</ol>${mine.notes_left_out ? html`<p class="lead">${count(mine.notes_left_out, "note")} more, of jobs with less GPU time</p>` : ""}`
      : html`<p class="lead">${mine ? "Nothing: your jobs used what they asked for." : "Nothing is known of jobs of yours that ran for a minute."}</p>`}</div>
    <div><h2>Where your waiting went ${waitsAll ? html`<small>${lasting(waitsAll)}, added up over your jobs</small>` : ""}</h2>${waits.length ? html`<table><tbody>${waits.slice(0, WHYS).map(one => html`<tr key=${one.why}><td><a class="lk" href=${`#/queue?why=${one.why}`}>${one.why}</a></td>
      <td><span class="pb lg"><i style=${{ width: `${one.waited_s / waitsAll * 100}%` }}></i></span></td><td class="r">${lasting(one.waited_s)}</td></tr>`)}</tbody></table>${waits.length > WHYS ? html`<p class="lead">${count(waits.length - WHYS, "reason")} more, ${lasting(waits.slice(WHYS).reduce((sum, one) => sum + one.waited_s, 0))} in all</p>` : ""}` : html`<p class="lead">No job of yours has waited for a minute.</p>`}</div></div>
    <${Shared} />
    <footer>As JSON: <a class="lk" href=${`/usage?since_s=${since}`}>usage</a>, <a class="lk" href=${`/usage/days?days=${shown.many}`}>by day</a>, <a class="lk" href=${`/usage/used?days=${shown.many}`}>used of asked</a>, <a class="lk" href=${`/usage/waiting?days=${shown.many}`}>waiting</a>, <a class="lk" href="/usage/shared">sharing</a></footer>`;
}
