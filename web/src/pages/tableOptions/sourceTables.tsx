import { useState } from "react";
import { Link } from "wouter";
import { tableAddress } from "../../addresses";
import type { SourceTable, Table } from "../../api/client";
import { Findings } from "../../components/findings";
import { Pager } from "../../components/pager";
import { matches } from "../../filters";
import { bytes, count, some } from "../../labels/numbers";
import { isBlocked, keyOf, nameOf } from "../wizard/draft";

const PAGE = 50;

interface SourceTablesProps {
  subscription: string;
  found: SourceTable[];
  /** Those that the subscription has. */
  replicated: Table[];
  onChoose: (table: SourceTable) => void;
}

/** The tables of a source to choose one from; those that the subscription has already follow the others. */
export function SourceTables({ subscription, found, replicated, onChoose }: SourceTablesProps) {
  const [typed, setTyped] = useState("");
  const [page, setPage] = useState(0);
  const present = new Map(replicated.map((table) => [keyOf(table), table.id]));
  const shown = found
    .filter((table) => matches(typed, nameOf(table)))
    .sort((a, b) => Number(present.has(keyOf(a))) - Number(present.has(keyOf(b))));
  if (found.length === 0) return <p className="prose">The source has no table outside its system&apos;s schemas that its user can see.</p>;
  return (
    <>
      <div className="search" role="search">
        <label>
          <span>Find by schema or name</span>
          <input
            type="search"
            value={typed}
            autoComplete="off"
            spellCheck={false}
            onChange={(event) => {
              setTyped(event.target.value);
              setPage(0);
            }}
          />
        </label>
        <span className="soft" role="status">
          {count(shown.length)} of {some(found.length, "table")}
        </span>
      </div>
      <table className="ledger tables-to-choose">
        <caption className="unseen">Tables of the source</caption>
        <thead>
          <tr>
            <th scope="col">Table</th>
            <th scope="col" className="number">
              Rows, about
            </th>
            <th scope="col" className="number">
              Size
            </th>
            <th scope="col">To be known</th>
            <th scope="col">
              <span className="unseen">Choose</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {shown.slice(page * PAGE, (page + 1) * PAGE).map((table) => (
            <Row key={keyOf(table)} table={table} address={addressOf(subscription, present.get(keyOf(table)))} onChoose={onChoose} />
          ))}
        </tbody>
      </table>
      <Pager page={page} size={PAGE} total={shown.length} noun="tables" onPage={setPage} />
    </>
  );
}

const addressOf = (subscription: string, id: string | undefined): string | null =>
  id === undefined ? null : tableAddress(subscription, id);

/** `address`: of the page of a table that is replicated already. */
function Row({ table, address, onChoose }: { table: SourceTable; address: string | null; onChoose: (table: SourceTable) => void }) {
  const name = nameOf(table);
  return (
    <tr>
      <th scope="row" data-column="Table">
        {address === null ? name : <Link href={address}>{name}</Link>}
        {table.partitioned && <small>partitioned</small>}
      </th>
      <td data-column="Rows, about" className="number">
        {count(table.rows_estimate)}
      </td>
      <td data-column="Size" className="number">
        {bytes(table.bytes)}
      </td>
      <td data-column="To be known" className="telling">
        {table.problems.length > 0 ? <Findings findings={table.problems} /> : <span className="soft">nothing</span>}
      </td>
      <td data-column="Choose" className="row-actions">
        {address !== null && <span className="soft">replicated</span>}
        {address === null && !isBlocked(table) && (
          <button type="button" aria-label={`Choose ${name}`} onClick={() => onChoose(table)}>
            Choose
          </button>
        )}
        {address === null && isBlocked(table) && <span className="soft">cannot be replicated</span>}
      </td>
    </tr>
  );
}
