import type { Action } from "../../../actions";
import { deleteSnapshot, type Snapshot } from "../../../api/snapshots";
import { ActionButtons } from "../../../components/actions";
import { Remedy } from "../../../components/remedy";
import { StatusBadge } from "../../../components/statusBadge";
import { Moment } from "../../../components/time";
import { bytes, count, some } from "../../../labels/numbers";
import { formatWords, snapshotWords } from "../../../labels/snapshots";
import { qualified, tableStateWords } from "../../../labels/tables";

/** Snapshots, each with its position, its state and its size. */
export const SnapshotLedger = ({ subscription, snapshots }: { subscription: string; snapshots: Snapshot[] }) => (
  <table className="ledger kept">
    <caption className="unseen">Snapshots, the newest first</caption>
    <thead>
      <tr>
        <th scope="col">Requested</th>
        <th scope="col">State</th>
        <th scope="col">Position</th>
        <th scope="col">Content</th>
        <th scope="col" className="number">
          Size
        </th>
        <th scope="col">
          <span className="unseen">What can be done</span>
        </th>
      </tr>
    </thead>
    <tbody>
      {snapshots.map((snapshot) => (
        <Row key={snapshot.id} subscription={subscription} snapshot={snapshot} />
      ))}
    </tbody>
  </table>
);

function Row({ subscription, snapshot }: { subscription: string; snapshot: Snapshot }) {
  const { tone, word } = snapshotWords(snapshot);
  const { created_at, scheduled, format, position, commit_time, problem } = snapshot;
  return (
    <tr>
      <th scope="row" data-column="Requested">
        <span>
          <Moment at={created_at} />
        </span>
        <small>{scheduled ? "by the schedule" : "by a user"}</small>
      </th>
      <td data-column="State" className="telling">
        <StatusBadge tone={tone}>{word}</StatusBadge>
        {typeof problem?.detail === "string" && <p>{problem.detail}</p>}
        {typeof problem?.remedy === "string" && <Remedy text={problem.remedy} here="subscription" />}
      </td>
      <td data-column="Position">
        {position === null ? "–" : <code>{position}</code>}
        {commit_time !== null && (
          <small>
            committed <Moment at={commit_time} />
          </small>
        )}
      </td>
      <td data-column="Content" className="telling">
        <span>
          {formatWords(format)}
          {snapshot.tables.length > 0 && `, ${some(snapshot.tables.length, "table")}`}
        </span>
        <Content snapshot={snapshot} />
      </td>
      <td data-column="Size" className="number">
        {bytes(snapshot.bytes)}
      </td>
      <td data-column="What can be done" className="row-actions">
        {(!snapshot.deleting || problem !== null) && <ActionButtons actions={[deleting(subscription, snapshot)]} />}
      </td>
    </tr>
  );
}

/** The name of a table; one that was removed for good has only its id. */
const nameOf = ({ id, schema, name }: { id: string; schema: string | null; name: string | null }): string =>
  schema === null || name === null ? id : qualified({ schema, name });

function Content({ snapshot: { folder, tables, left_out } }: { snapshot: Snapshot }) {
  return (
    <>
      {folder !== null && (
        <details>
          <summary>Folder and files</summary>
          <p>
            <code>{folder}</code>
          </p>
          <ul className="changes">
            {tables.map((table) => (
              <li key={table.id}>
                {nameOf(table)}: <code>{table.file}</code>, {some(table.rows, "row")}
                {table.rows_set_aside > 0 && `; ${some(table.rows_set_aside, "quarantined row")} missing`}
              </li>
            ))}
          </ul>
        </details>
      )}
      {left_out.length > 0 && (
        <details>
          <summary>
            <StatusBadge tone="warn">{count(left_out.length)} left out</StatusBadge>
          </summary>
          <ul className="changes">
            {left_out.map((table) => (
              <li key={table.id}>
                {nameOf(table)}: {tableStateWords(table.state).word}
                {table.reason !== null && `, ${table.reason}`}
              </li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}

function deleting(subscription: string, snapshot: Snapshot): Action {
  const { id, name, state, created_at, ended_at } = snapshot;
  const run = () => deleteSnapshot(subscription, id);
  if (ended_at === null) {
    const does = ["What was written of it is deleted.", "It stays listed as cancelled."];
    const subject = "the snapshot that is being written";
    return { verb: "Cancel", title: `Cancel ${subject}?`, does, name: subject, run, done: `${subscription}: the snapshot was cancelled.` };
  }
  if (state !== "succeeded") {
    const subject = `the ${state} snapshot of ${new Date(created_at).toLocaleString("sv-SE", { timeZone: "UTC" })} UTC`;
    const done = `${subscription}: it was removed from the list.`;
    return { verb: "Remove", title: `Remove ${subject} from the list?`, does: ["It has no files."], name: subject, run, done };
  }
  return {
    verb: "Delete",
    title: `Delete the snapshot ${name}?`,
    does: [
      "Its folder and its files are deleted on the engine's machine, and a link to it, such as latest-parquet.",
      "Programs that have its files open can read them until they close them.",
    ],
    name: `the snapshot ${name}`,
    serious: true,
    run,
    done: `${subscription}: deleting the snapshot ${name} was requested.`,
  };
}
