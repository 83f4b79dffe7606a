// What is shown, as it is now: one stream of changes, `/live`, for the view that is seen; none for a tab that is not.
import { SILENT_MS, refused, unreachable } from "/page/common.js";

let stream = null, told = () => {};
export const connect = heard => { told = heard; };

export function screen(query) {  // resolves to what `/live?query` has told so far; another query ends the stream of the one before
  if (stream?.query !== query) {
    close();
    stream = { query, control: new AbortController(), whole: null };
    stream.first = new Promise((resolve, reject) => Object.assign(stream, { resolve, reject }));
    read(stream);
  }
  return stream.whole ? Promise.resolve(stream.whole) : stream.first;
}

export function close() {
  const ended = stream;
  stream = null;
  ended?.control.abort();
}

async function read(one) {
  let watch = 0;
  const heard = () => {
    clearTimeout(watch);
    watch = setTimeout(() => one.control.abort(), SILENT_MS);
  };
  try {
    heard();
    const answer = await fetch(`/live?${one.query}`, { credentials: "same-origin", signal: one.control.signal });
    if (!answer.ok) throw await refused(answer);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ""; ;) {
      const { done, value } = await reader.read();
      if (done) throw new Error("it has ended what it told");
      heard();
      const parts = (rest + value).split("\r\n\r\n");
      rest = parts.pop();
      if (parts.map(part => take(one, part)).includes(true) && one === stream) told();
    }
  } catch (error) {
    const said = unreachable(error, one.control.signal.aborted);
    one.reject(said);
    if (one === stream) {
      stream = null;
      if (one.whole) told(said);
    }
  } finally { clearTimeout(watch); }
}

function take(one, part) {  // whether it is an event: a comment only keeps the connection
  const lines = part.split("\r\n"), kind = lines.find(line => line.startsWith("event: "))?.slice(7), data = lines.find(line => line.startsWith("data: "));
  if (!kind || !data) return false;
  const body = JSON.parse(data.slice(6)), isFirst = !one.whole;
  if (kind === "whole") one.whole = body;
  else if (kind === "change") one.whole = changed(one.whole, body);
  if (isFirst) one.resolve(one.whole);
  return !isFirst;
}

function changed(whole, { ids, rows, overview, ...rest }) {
  const known = new Map(whole.rows.map(row => [row.id, row]));
  for (const row of rows || []) known.set(row.id, row);
  return { ...whole, ...rest, rows: (ids || whole.rows.map(row => row.id)).map(id => known.get(id)),
    ...overview ? { overview: { ...whole.overview, ...overview } } : {} };
}
