import { Link } from "wouter";
import { tableAddress } from "../../addresses";
import type { SourceTable, Table } from "../../api/client";
import { Findings } from "../../components/findings";
import { SourceTableList } from "../../components/sourceTableList";
import { isBlocked, keyOf, nameOf } from "../wizard/draft";

interface SourceTablesProps {
  subscription: string;
  found: SourceTable[];
  /** Those that the subscription has. */
  replicated: Table[];
  onChoose: (table: SourceTable) => void;
}

/** The tables of a source to choose one from; those that the subscription has already follow the others. */
export function SourceTables({ subscription, found, replicated, onChoose }: SourceTablesProps) {
  const present = new Map(replicated.map((table) => [keyOf(table), tableAddress(subscription, table.id)]));
  const addressOf = (table: SourceTable): string | undefined => present.get(keyOf(table));
  return (
    <SourceTableList
      tables={[...found].sort((a, b) => Number(present.has(keyOf(a))) - Number(present.has(keyOf(b))))}
      first={(table) => <Name table={table} address={addressOf(table)} />}
      headings={[
        "To be known",
        <span key="choose" className="unseen">
          Choose
        </span>,
      ]}
      rest={(table) => <Cells table={table} replicated={present.has(keyOf(table))} onChoose={onChoose} />}
    />
  );
}

/** `address`: of the page of a table that is replicated already. */
const Name = ({ table, address }: { table: SourceTable; address: string | undefined }) => (
  <>
    {address === undefined ? nameOf(table) : <Link href={address}>{nameOf(table)}</Link>}
    {table.partitioned && <small>partitioned</small>}
  </>
);

interface CellsProps {
  table: SourceTable;
  replicated: boolean;
  onChoose: (table: SourceTable) => void;
}

const Cells = ({ table, replicated, onChoose }: CellsProps) => (
  <>
    <td data-column="To be known" className="telling">
      {table.problems.length > 0 ? <Findings findings={table.problems} /> : <span className="soft">nothing</span>}
    </td>
    <td data-column="Choose" className="row-actions">
      {replicated && <span className="soft">replicated</span>}
      {!replicated && !isBlocked(table) && (
        <button type="button" aria-label={`Choose ${nameOf(table)}`} onClick={() => onChoose(table)}>
          Choose
        </button>
      )}
      {!replicated && isBlocked(table) && <span className="soft">cannot be replicated</span>}
    </td>
  </>
);
