import { useState } from "react";
import type { Version, VersionColumn } from "../api/client";
import { StatusBadge } from "../components/statusBadge";
import { Moment } from "../components/time";
import { count, seconds, some } from "../labels/numbers";
import { differences } from "../labels/structures";
import { tableStateWords } from "../labels/tables";

/** A table that is reloaded every night has thousands. */
const AT_FIRST = 50;

const LEARNT: Record<string, string> = {
  copied: "found by the copy",
  log: "announced by the source's log",
  ddl_trigger: "written by the source's event trigger",
  catalog: "read from the source's catalog",
  target: "found on the target",
};

/** A table's history, newest first: how it was and what it consisted of. */
export function Versions({ versions }: { versions: Version[] }) {
  const [all, setAll] = useState(false);
  if (versions.length === 0) return <p className="soft">Nothing is known of it yet.</p>;
  const shown = all ? versions.length : AT_FIRST;
  return (
    <>
      <ol className="history">
        {versions
          .map((version, number) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: a history only grows at its end.
            <li key={number}>
              <span className="when">
                <Moment at={version.at} />
              </span>
              {version.change === "structure" ? (
                <Structure version={version} before={structureBefore(versions, number)} />
              ) : (
                <State version={version} until={stateAfter(versions, number)?.at ?? null} />
              )}
            </li>
          ))
          .slice(-shown)
          .reverse()}
      </ol>
      {versions.length > shown && (
        <button type="button" onClick={() => setAll(true)}>
          Show all {count(versions.length)}
        </button>
      )}
    </>
  );
}

/** The change that ended the state which the version of this number began; undefined where it lasts. */
function stateAfter(versions: Version[], number: number): Version | undefined {
  return versions.slice(number + 1).find(({ change }) => change === "state");
}

/** The structure that the version of this number took the place of; undefined for the first one. */
function structureBefore(versions: Version[], number: number): Version | undefined {
  return versions.slice(0, number).findLast(({ change }) => change === "structure");
}

/** `until`: when the state ended; null where it lasts. */
function State({ version, until }: { version: Version; until: string | null }) {
  const { tone, word } = tableStateWords(version.state ?? "?");
  return (
    <>
      <StatusBadge tone={tone}>{word}</StatusBadge>
      <div>
        {version.reason != null && (
          <p>
            {version.reason} {version.code != null && <code className="soft">{version.code}</code>}
          </p>
        )}
        {until !== null && <p className="soft">for {seconds((Date.parse(until) - Date.parse(version.at)) / 1000)}</p>}
        <At version={version} />
      </div>
    </>
  );
}

function Structure({ version, before }: { version: Version; before: Version | undefined }) {
  const columns = version.columns ?? [];
  const changes = differences(version, before);
  return (
    <>
      <StatusBadge tone="note">structure</StatusBadge>
      <div>
        {changes === null && <p className="soft">What changed was not recorded.</p>}
        {changes?.length === 0 && <p>{before === undefined ? "The first known schema." : "As it was before."}</p>}
        {changes !== null && changes.length > 0 && (
          <ul className="changes">
            {changes.map((change) => (
              <li key={change}>{change}</li>
            ))}
          </ul>
        )}
        {version.certain === false && <p className="soft">The catalog was further on already, so columns were matched by name and type.</p>}
        <At version={version} />
        {columns.length > 0 && (
          <details>
            <summary>{some(columns.length, "column")}</summary>
            <Columns columns={columns} keyed={version.key ?? []} />
          </details>
        )}
      </div>
    </>
  );
}

function At({ version }: { version: Version }) {
  const learnt = version.learnt == null ? null : (LEARNT[version.learnt] ?? version.learnt);
  if (version.position == null && learnt === null) return null;
  return (
    <p className="soft">
      {learnt}
      {version.position != null && (
        <>
          {learnt !== null && ", "}from <code>{version.position}</code>
        </>
      )}
    </p>
  );
}

function Columns({ columns, keyed }: { columns: VersionColumn[]; keyed: string[] }) {
  return (
    <table className="ledger columns">
      <thead>
        <tr>
          <th scope="col">Column</th>
          <th scope="col">On the source</th>
          <th scope="col">On the target</th>
        </tr>
      </thead>
      <tbody>
        {columns.map((column) => (
          <tr key={column.name}>
            <th scope="row" data-column="Column">
              {column.name}
              {keyed.includes(column.name) && <small>key</small>}
            </th>
            <td data-column="On the source">
              <span>
                <code>{column.type}</code>
                {column.nullable === false && " not null"}
              </span>
            </td>
            <td data-column="On the target">{column.mapped == null ? "–" : <code>{column.mapped}</code>}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
