import { Problem } from "../api/problem";
import { Findings } from "./findings";
import { Remedy } from "./remedy";
import { StatusBadge } from "./statusBadge";

/** Why something was not done, and what can be done about it. */
export function ProblemNote({ error }: { error: unknown }) {
  const problem = Problem.from(error);
  return (
    <div className="note tone-bad" role="alert">
      <p className="note-title">
        <StatusBadge tone="bad">{problem.title}</StatusBadge>
      </p>
      <p>{problem.detail}</p>
      {problem.remedy !== "" && <Remedy text={problem.remedy} actions={problem.actions} />}
      {problem.findings.length > 0 && <Findings findings={problem.findings} />}
      {problem.traceId !== undefined && (
        <p className="soft">
          In the server's log: <code>{problem.traceId}</code>
        </p>
      )}
    </div>
  );
}
