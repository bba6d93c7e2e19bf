/** The actions on jobs, as requests of the dialog. */

/** Return the label and the act of a job's pause, or of its resumption. */
export function pauseOrResumeJob(page, row) {
  const action = row.wanted === "paused" ? "resume" : "pause";
  const label = action === "pause" ? "Pause" : "Resume";
  const request = { action, label, title: `${label} ${row.job}`, body: { job: row.job } };
  return { label, act: () => page.act(request, targetOf(row)) };
}

export function stopJob(page, row) {
  page.act({ action: "stop", label: "Stop", title: `Stop ${row.job}`, body: { job: row.job } }, targetOf(row));
}

function targetOf(row) {
  return { kind: "jobs", name: row.job };
}
