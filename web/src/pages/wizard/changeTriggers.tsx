import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { ChangeTriggers as Found, QualifiedName, SourceTable } from "../../api/client";
import { changeTriggersInstallation, changeTriggersRemoval, changeTriggersUpdate } from "../../changeTriggersActions";
import { ActionButtons } from "../../components/actions";
import { ProblemNote } from "../../components/problemNote";
import { QueryBoundary } from "../../components/queryBoundary";
import { SourceTableList } from "../../components/sourceTableList";
import { Statements } from "../../components/statements";
import { StatusBadge } from "../../components/statusBadge";
import { asScript, variantWords } from "../../labels/changeTriggers";
import { some } from "../../labels/numbers";
import { qualified } from "../../labels/tables";
import { usePermission } from "../../usePermission";
import { keyOf, nameOf } from "./draft";
import { changeTriggersPlanQuery, changeTriggersQuery, sourceTablesQuery } from "./queries";

/** The triggers that record the changes of a source: which tables have them, what would be run, and the buttons for it. */
export function ChangeTriggers({ name }: { name: string }) {
  const found = useQuery(changeTriggersQuery(name));
  const may = usePermission();
  const [planning, setPlanning] = useState(false);
  if (found.error !== null) return <ProblemNote error={found.error} />;
  if (found.data === undefined) return <p className="soft">Asking the source …</p>;
  const { installed, current, tables, install_sql, remove_sql } = found.data;
  const outdated = installed && !current;
  return (
    <>
      <p className="prose">
        <StatusBadge tone={current ? "good" : installed ? "warn" : "idle"}>{stateWords(found.data)}</StatusBadge>{" "}
        <span className="soft">
          A subscription that captures by triggers installs what it needs, unless its settings leave that to an administrator.
        </span>
      </p>
      {tables.length > 0 && <Recorded tables={tables} />}
      {installed && (
        <div className="form-foot">
          <ActionButtons actions={[...(outdated ? [changeTriggersUpdate(name)] : []), changeTriggersRemoval(name)]} />
        </div>
      )}
      {outdated && (
        <details className="more">
          <summary>What bringing them up to date runs</summary>
          <Statements name="Bringing the triggers up to date" sql={install_sql} />
        </details>
      )}
      {installed && (
        <details className="more">
          <summary>What removing them runs</summary>
          <Statements name="Removing the triggers" sql={remove_sql} />
        </details>
      )}
      {may("operator") && (
        <details className="more" onToggle={(event) => setPlanning(event.currentTarget.open)}>
          <summary>Install them on tables before a subscription needs them</summary>
          {planning && <Planning name={name} />}
        </details>
      )}
    </>
  );
}

const stateWords = ({ installed, current, tables }: Found): string => {
  if (!installed) return "No triggers are installed.";
  return current ? `${some(tables.length, "table")} recorded; all triggers are up to date.` : "Some triggers are outdated or incomplete.";
};

const Recorded = ({ tables }: { tables: Found["tables"] }) => (
  <table className="ledger">
    <caption className="unseen">Tables with triggers</caption>
    <thead>
      <tr>
        <th scope="col">Table</th>
        <th scope="col">Recorded</th>
        <th scope="col">State</th>
      </tr>
    </thead>
    <tbody>
      {tables.map((table) => (
        <tr key={keyOf(table)}>
          <th scope="row" data-column="Table">
            {qualified(table)}
          </th>
          <td data-column="Recorded">{variantWords(table.variant)}</td>
          <td data-column="State">
            <StatusBadge tone={table.current ? "good" : "warn"}>{table.current ? "up to date" : "outdated or incomplete"}</StatusBadge>
          </td>
        </tr>
      ))}
    </tbody>
  </table>
);

/** Chooses tables, and shows what installing triggers on them would run. */
function Planning({ name }: { name: string }) {
  const tables = useQuery(sourceTablesQuery(name));
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [planned, setPlanned] = useState(false);
  const choose = (table: SourceTable, taken: boolean): void => {
    const next = new Set(chosen);
    if (taken) next.add(keyOf(table));
    else next.delete(keyOf(table));
    setChosen(next);
    setPlanned(false);
  };
  return (
    <QueryBoundary query={tables}>
      {(all) => (
        <>
          <SourceTableList
            tables={all}
            first={(table) => (
              <label className="check">
                <input type="checkbox" checked={chosen.has(keyOf(table))} onChange={(event) => choose(table, event.target.checked)} />
                {nameOf(table)}
              </label>
            )}
            headings={["Key"]}
            rest={(table) => (
              <td data-column="Key">{table.key.length > 0 ? <code>{table.key.join(", ")}</code> : <span className="soft">none</span>}</td>
            )}
          />
          <div className="form-foot">
            <button type="button" disabled={chosen.size === 0} onClick={() => setPlanned(true)}>
              Show what it runs
            </button>
          </div>
          {planned && <Plan name={name} tables={all.filter((table) => chosen.has(keyOf(table)))} />}
        </>
      )}
    </QueryBoundary>
  );
}

function Plan({ name, tables }: { name: string; tables: SourceTable[] }) {
  const named: QualifiedName[] = tables.map(({ schema, name: table }) => ({ schema, name: table }));
  const plan = useQuery(changeTriggersPlanQuery(name, named));
  return (
    <QueryBoundary query={plan}>
      {({ statements, grants }) =>
        statements.length === 0 ? (
          <p className="prose" role="status">
            Nothing has to be done: these tables have their triggers.
          </p>
        ) : (
          <>
            <Statements name="Installing the triggers" sql={asScript(statements)} />
            {grants.length > 0 && (
              <>
                <p className="prose soft">If another role than the connection's user runs them, in addition:</p>
                <Statements name="Rights for the connection's user" sql={grants} />
              </>
            )}
            <div className="form-foot">
              <ActionButtons actions={[changeTriggersInstallation(name, named)]} />
            </div>
          </>
        )
      }
    </QueryBoundary>
  );
}
