import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { Action } from "../actions";
import { answer, client, type Partition, type Table } from "../api/client";
import { partitionsQuery } from "../api/queries";
import { ActionButtons } from "../components/actions";
import { Section } from "../components/page";
import { QueryBoundary } from "../components/queryBoundary";
import { Moment } from "../components/time";
import { count, some } from "../labels/numbers";
import { LOADED, partitionReload } from "../labels/partitions";
import { tableName } from "../labels/tables";
import { usePermission } from "../usePermission";

interface Of {
  subscription: string;
  table: Table;
}

/** The partitions of a table on the source and their loads, read on request; some of them are reloaded without the others. */
export function Partitions({ subscription, table }: Of) {
  const [wanted, setWanted] = useState(false);
  const partitions = useQuery({ ...partitionsQuery(subscription, table.id), enabled: wanted });
  if (table.state === "removed") return null;
  return (
    <Section title="Partitions" aside="Read from the source on request">
      <details className="more" onToggle={(event) => event.currentTarget.open && setWanted(true)}>
        <summary>Show partitions</summary>
        {wanted && (
          <>
            <QueryBoundary query={partitions}>
              {(found) =>
                found.length === 0 ? (
                  <p className="soft">The table is not partitioned.</p>
                ) : (
                  <Chosen subscription={subscription} table={table} partitions={found} />
                )
              }
            </QueryBoundary>
            <p className="below">
              <button type="button" disabled={partitions.isFetching} onClick={() => void partitions.refetch()}>
                {partitions.isFetching ? "Reading …" : "Read again"}
              </button>
            </p>
          </>
        )}
      </details>
    </Section>
  );
}

function Chosen({ subscription, table, partitions }: Of & { partitions: Partition[] }) {
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const mayReload = usePermission()("operator");
  const possible = mayReload && table.state === "live";
  const names = partitions.filter(({ name, reloadable }) => reloadable && chosen.has(name)).map(({ name }) => name);
  const reloads: Action[] = [
    ...(names.length > 0 ? [reloadOf(subscription, table, names)] : []),
    ...(partitions.some(({ reloadable }) => reloadable) ? [reloadOf(subscription, table, "changed")] : []),
  ];
  const toggle = (name: string): void => {
    const next = new Set(chosen);
    if (!next.delete(name)) next.add(name);
    setChosen(next);
  };
  return (
    <>
      <table className="ledger partitions">
        <caption className="unseen">Partitions of {tableName(table)}</caption>
        <thead>
          <tr>
            <th scope="col">Partition</th>
            <th scope="col">Bound</th>
            <th scope="col" className="number">
              Generation
            </th>
            <th scope="col">Last load</th>
          </tr>
        </thead>
        <tbody>
          {partitions.map((partition) => (
            <tr key={partition.name}>
              <th scope="row" data-column="Partition">
                {possible ? (
                  <label className="check">
                    <input
                      type="checkbox"
                      checked={chosen.has(partition.name) && partition.reloadable}
                      disabled={!partition.reloadable}
                      onChange={() => toggle(partition.name)}
                    />
                    {partition.name}
                  </label>
                ) : (
                  partition.name
                )}
                {!partition.has_rows && <small>itself partitioned</small>}
                {partition.obstacle !== null && <small>cannot be reloaded separately: {partition.obstacle}</small>}
              </th>
              <td data-column="Bound" className="telling">
                <code>{partition.bound}</code>
                {partition.parent !== tableName(table) && <small>of {partition.parent}</small>}
              </td>
              <td data-column="Generation" className="number">
                {count(partition.generation)}
              </td>
              <td data-column="Last load">
                {partition.loaded_at === null ? <span className="soft">not recorded</span> : <Moment at={partition.loaded_at} />}
                {partition.reason !== null && <small>{LOADED[partition.reason]}</small>}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <p className="soft" role="status">
        {!mayReload
          ? "Reloading requires an operator's token; yours is read-only."
          : table.state !== "live"
            ? "Partitions are reloaded only while the table is live; reload the whole table."
            : names.length > 0
              ? `${some(names.length, "partition")} chosen`
              : "Choose partitions to reload them without the others."}
      </p>
      {possible && (
        <div className="actions">
          <ActionButtons actions={reloads} />
        </div>
      )}
    </>
  );
}

function reloadOf(subscription: string, table: Table, partitions: string[] | "changed"): Action {
  const name = tableName(table);
  const path = { name: subscription, table_id: table.id };
  return {
    ...partitionReload(name, partitions),
    run: () => answer(client.POST("/api/v1/subscriptions/{name}/tables/{table_id}/reloads", { params: { path }, body: { partitions } })),
  };
}
