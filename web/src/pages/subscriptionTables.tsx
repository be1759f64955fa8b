import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { tableActions } from "../actions";
import { tableAddress } from "../addresses";
import type { Subscription, Table } from "../api/client";
import { tablesQuery } from "../api/queries";
import { bulkActions, canBeReloaded, canBeRetried } from "../bulkActions";
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
import { usePermission } from "../usePermission";

const AT_ONCE = 50;
/** The API lists removed tables only when they are asked for. */
const REMOVED = "removed";

/** What keeps the tables. */
interface Kept {
  subscription: string;
  /** Tables chosen to act on together; null where that is not offered. */
  choice: { has: (table: Table) => boolean; toggle: (table: Table) => void } | null;
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

interface FoundProps {
  subscription: string;
  all: Table[];
  filters: Filters;
}

function Found({ all, filters, subscription }: FoundProps) {
  const [ids, setIds] = useState<ReadonlySet<string>>(new Set());
  const mayAct = usePermission()("operator");
  const state = filters.get("state");
  const found = all
    .filter((table) => (state === "" || table.state === state) && matches(filters.get("q"), tableName(table), qualified(table.target)))
    .sort(byNeed);
  const last = Math.max(0, Math.ceil(found.length / AT_ONCE) - 1);
  const page = Math.min(Math.max(0, (Number.parseInt(filters.get("page"), 10) || 1) - 1), last);
  const choosable = found.filter(canBeReloaded);
  const chosen = choosable.filter(({ id }) => ids.has(id));
  const toggle = ({ id }: Table): void => {
    const next = new Set(ids);
    if (!next.delete(id)) next.add(id);
    setIds(next);
  };
  const choice = mayAct && choosable.length > 1 ? { has: ({ id }: Table) => ids.has(id), toggle } : null;
  return (
    <>
      <SearchField label="Find by name" filters={filters} result={`${count(found.length)} of ${some(all.length, "table")}`} />
      {choice !== null && (
        <Bulk
          subscription={subscription}
          choosable={choosable}
          chosen={chosen}
          onChoose={(tables) => setIds(new Set(tables.map(({ id }) => id)))}
        />
      )}
      {found.length > 0 && (
        <Ledger tables={found.slice(page * AT_ONCE, (page + 1) * AT_ONCE)} subscription={subscription} choice={choice} />
      )}
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

interface BulkProps {
  subscription: string;
  choosable: Table[];
  chosen: Table[];
  onChoose: (tables: Table[]) => void;
}

/** Chooses several of the tables that are found, on all pages, and acts on them together. */
function Bulk({ subscription, choosable, chosen, onChoose }: BulkProps) {
  const parked = choosable.filter(canBeRetried);
  const all = chosen.length === choosable.length;
  return (
    <fieldset className="bulk">
      <legend className="unseen">Several tables together</legend>
      {parked.length > 0 && (
        <button type="button" className="quiet" onClick={() => onChoose(parked)}>
          Select {some(parked.length, "parked table")}
        </button>
      )}
      <button type="button" className="quiet" onClick={() => onChoose(all ? [] : choosable)}>
        {all ? "Select none" : `Select all ${count(choosable.length)}`}
      </button>
      <span className="soft" role="status">
        {chosen.length > 0 && `${some(chosen.length, "table")} selected`}
      </span>
      <ActionButtons actions={bulkActions(subscription, chosen, () => onChoose([]))} />
    </fieldset>
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

function Row({ table, subscription, choice }: Kept & { table: Table }) {
  const { tone, word } = tableWords(table);
  const name = tableName(table);
  const elsewhere = qualified(table.target) !== name;
  const hint = asked(table);
  const copied = isCopied(table) ? copyWords(table.copied, table.health.status !== "moving") : null;
  return (
    <tr>
      <th scope="row" data-column="Table">
        <span className={choice === null ? undefined : "check"}>
          {choice !== null && (
            <input
              type="checkbox"
              aria-label={`Select ${name}`}
              checked={choice.has(table) && canBeReloaded(table)}
              disabled={!canBeReloaded(table)}
              onChange={() => choice.toggle(table)}
            />
          )}
          <Link href={tableAddress(subscription, table.id)}>{name}</Link>
        </span>
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
