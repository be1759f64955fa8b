import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { tableActions } from "../actions";
import { tableAddress } from "../addresses";
import type { Subscription, Table } from "../api/client";
import { tablesQuery } from "../api/queries";
import { ActionButtons } from "../components/actions";
import { Pager } from "../components/pager";
import { QueryBoundary } from "../components/queryBoundary";
import { SearchField } from "../components/searchField";
import { StatusBadge } from "../components/statusBadge";
import { StatusCounts } from "../components/statusCounts";
import { Ago } from "../components/time";
import { type Filters, matches, useFilters } from "../filters";
import { heldUp } from "../labels/health";
import { count, some } from "../labels/numbers";
import { asked, byNeed, copyWords, isCopied, qualified, statesByNeed, tableName, tableStateWords, tableWords } from "../labels/tables";

const AT_ONCE = 50;
/** The API lists removed tables only when they are asked for. */
const REMOVED = "removed";

/** What keeps the tables. */
interface Kept {
  subscription: string;
}

/** The tables of a subscription, those that need attention first; filter, search and page are kept in the address. */
export function Tables({ subscription }: { subscription: Subscription }) {
  const filters = useFilters();
  const removed = filters.get("state") === REMOVED;
  const tables = useQuery(tablesQuery(subscription.name, removed));
  return (
    <>
      <TableCounts subscription={subscription} filters={filters} />
      <QueryBoundary query={tables}>{(all) => <Found all={all} filters={filters} subscription={subscription.name} />}</QueryBoundary>
      <p className="below">
        {removed ? (
          <Link href={filters.address({ state: null, page: null })} replace>
            Show replicated tables
          </Link>
        ) : (
          <Link href={filters.address({ state: REMOVED, page: null })} replace>
            Show removed tables
          </Link>
        )}
      </p>
    </>
  );
}

function TableCounts({ subscription, filters }: { subscription: Subscription; filters: Filters }) {
  const held = heldUp(subscription.health);
  const items = Object.entries(subscription.table_states)
    .map(([value, number]) => ({ value, number, ...tableStateWords(value, held) }))
    .sort((a, b) => statesByNeed(a.value, b.value));
  const total = items.reduce((sum, { number }) => sum + number, 0);
  return <StatusCounts noun="tables" filter="state" filters={filters} items={items} total={total} />;
}

interface FoundProps extends Kept {
  all: Table[];
  filters: Filters;
}

function Found({ all, filters, ...kept }: FoundProps) {
  const state = filters.get("state");
  const found = all
    .filter((table) => (state === "" || table.state === state) && matches(filters.get("q"), tableName(table), qualified(table.target)))
    .sort(byNeed);
  const last = Math.max(0, Math.ceil(found.length / AT_ONCE) - 1);
  const page = Math.min(Math.max(0, (Number.parseInt(filters.get("page"), 10) || 1) - 1), last);
  return (
    <>
      <SearchField label="Find by name" filters={filters} result={`${count(found.length)} of ${some(all.length, "table")}`} />
      {found.length > 0 && <Ledger tables={found.slice(page * AT_ONCE, (page + 1) * AT_ONCE)} {...kept} />}
      <Pager
        page={page}
        size={AT_ONCE}
        total={found.length}
        noun="tables"
        onPage={(wanted) => filters.set({ page: wanted === 0 ? null : wanted + 1 })}
      />
    </>
  );
}

function Ledger({ tables, ...kept }: Kept & { tables: Table[] }) {
  return (
    <table className="ledger tables">
      <caption className="unseen">Tables, those that need attention first</caption>
      <thead>
        <tr>
          <th scope="col">Table</th>
          <th scope="col">State</th>
          <th scope="col">Since</th>
          <th scope="col" className="number">
            Rows copied
          </th>
          <th scope="col">
            <span className="unseen">Actions</span>
          </th>
        </tr>
      </thead>
      <tbody>
        {tables.map((table) => (
          <Row key={table.id} table={table} {...kept} />
        ))}
      </tbody>
    </table>
  );
}

function Row({ table, subscription }: Kept & { table: Table }) {
  const { tone, word } = tableWords(table);
  const name = tableName(table);
  const elsewhere = qualified(table.target) !== name;
  const hint = asked(table);
  const copied = isCopied(table) ? copyWords(table.copied, table.health.status !== "moving") : null;
  return (
    <tr>
      <th scope="row" data-column="Table">
        <Link href={tableAddress(subscription, table.id)}>{name}</Link>
        {elsewhere && <small>→ {qualified(table.target)}</small>}
      </th>
      <td data-column="State" className="telling">
        <StatusBadge tone={tone}>{word}</StatusBadge>
        {copied !== null && <small>{copied}</small>}
        {copied !== null && table.copied.rows_per_second != null && <small>{count(Math.round(table.copied.rows_per_second))} rows/s</small>}
        {hint !== null && <small>{hint}</small>}
        {table.reason != null && <small>{table.reason}</small>}
      </td>
      <td data-column="Since">
        <Ago at={table.state_since} />
      </td>
      <td data-column="Rows copied" className="number">
        {count(table.copied.rows)}
        {isCopied(table) && table.copied.total_rows != null && <small>of about {count(table.copied.total_rows)}</small>}
      </td>
      <td data-column="Actions" className="row-actions">
        <ActionButtons actions={tableActions(subscription, table)} />
      </td>
    </tr>
  );
}
