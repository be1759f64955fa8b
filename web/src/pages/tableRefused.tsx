import { useQuery } from "@tanstack/react-query";
import type { Action } from "../actions";
import { answer, client, type RefusedRow, type RefusedRowsOutcome, type Table } from "../api/client";
import { Problem } from "../api/problem";
import { REFUSED_AT_ONCE, refusedRowsQuery } from "../api/queries";
import { ActionButtons } from "../components/actions";
import { Fact, Facts } from "../components/facts";
import { Section } from "../components/page";
import { QueryBoundary } from "../components/queryBoundary";
import { StatusBadge } from "../components/statusBadge";
import { Moment } from "../components/time";
import { count } from "../labels/numbers";
import { tableName } from "../labels/tables";
import type { Tone } from "../labels/tone";

const STATES: Record<string, { tone: Tone; word: string }> = {
  parked: { tone: "bad", word: "parks the table" },
  set_aside: { tone: "warn", word: "set aside" },
  skipped: { tone: "idle", word: "left out" },
};

/** The rows that the target refused, why, and what can be done about each. Nothing where there are none. */
export function RefusedRows({ subscription, table }: { subscription: string; table: Table }) {
  const aside = table.rows_set_aside ?? 0;
  const rows = useQuery({ ...refusedRowsQuery(subscription, table), enabled: aside > 0 || table.state === "parked" });
  if (aside === 0 && (table.state !== "parked" || (rows.data?.items.length ?? 0) === 0)) return null;
  return (
    <Section title="Refused rows" aside="Stored on the target, as the source sent them">
      <QueryBoundary query={rows}>
        {({ items, next_page_token }) => (
          <>
            <ActionsForAll subscription={subscription} table={table} rows={items} />
            <ol className="history">
              {items.map((row) => (
                <li key={row.id}>
                  <Row subscription={subscription} table={table} row={row} />
                </li>
              ))}
            </ol>
            {next_page_token != null && <p className="soft">The first {count(REFUSED_AT_ONCE)}; the API lists all of them.</p>}
          </>
        )}
      </QueryBoundary>
    </Section>
  );
}

interface Of {
  subscription: string;
  table: Table;
}

function ActionsForAll({ subscription, table, rows }: Of & { rows: RefusedRow[] }) {
  if (rows.filter(({ state }) => state === "set_aside").length < 2) return null;
  const path = { params: { path: { name: subscription, table_id: table.id } } };
  const name = `the refused rows of ${tableName(table)}`;
  const again = (): Promise<unknown> => put(client.POST("/api/v1/subscriptions/{name}/tables/{table_id}/refused-rows/retries", path));
  const skip = (): Promise<unknown> => answer(client.POST("/api/v1/subscriptions/{name}/tables/{table_id}/refused-rows/skips", path));
  return (
    <div className="actions">
      <ActionButtons
        actions={[
          { ...retryOf(name, again), verb: "Retry all" },
          { ...skipOf(name, skip), verb: "Skip all" },
        ]}
      />
    </div>
  );
}

function Row({ subscription, table, row }: Of & { row: RefusedRow }) {
  const { tone, word } = STATES[row.state] ?? { tone: "unknown", word: `unknown (${String(row.state)})` };
  return (
    <>
      <span className="when">
        <Moment at={row.refused_at} />
      </span>
      <StatusBadge tone={tone}>{word}</StatusBadge>
      <div>
        <p>
          <strong>{keyOf(row)}</strong>: {row.cause.detail}
        </p>
        <p className="soft">
          {row.operation === "copy" ? "Read by a copy" : `Of an ${row.operation} in batch ${row.batch}`}
          {row.cause.sqlstate !== null && `; SQLSTATE ${row.cause.sqlstate}`}
          {row.skipped_at !== null && (
            <>
              ; left out by {row.skipped_by} at <Moment at={row.skipped_at} />
            </>
          )}
        </p>
        <Values row={row} />
        <div className="actions">
          <ActionButtons actions={actionsOf(subscription, table, row)} />
        </div>
      </div>
    </>
  );
}

/** A table without a key has none for its rows. */
const keyOf = ({ key }: RefusedRow): string => (key.length === 0 ? "A row" : key.map((part) => part ?? "NULL").join(", "));

const Values = ({ row: { values } }: { row: RefusedRow }) => (
  <details className="more">
    <summary>Its values</summary>
    <Facts>
      {values.map(({ column, type, value }) => (
        <Fact key={column} name={column} note={type}>
          {value === null ? <span className="soft">NULL</span> : <code>{value}</code>}
        </Fact>
      ))}
    </Facts>
  </details>
);

/** What parks a table is dealt with by the table's own buttons. */
function actionsOf(subscription: string, table: Table, row: RefusedRow): Action[] {
  const path = { params: { path: { name: subscription, table_id: table.id, row_id: row.id } } };
  const name = `row ${keyOf(row)} of ${tableName(table)}`;
  const again = (): Promise<unknown> =>
    put(client.POST("/api/v1/subscriptions/{name}/tables/{table_id}/refused-rows/{row_id}/retries", path));
  const skip = (): Promise<unknown> =>
    answer(client.POST("/api/v1/subscriptions/{name}/tables/{table_id}/refused-rows/{row_id}/skips", path));
  if (row.state === "set_aside") return [retryOf(name, again), skipOf(name, skip)];
  return row.state === "skipped" ? [retryOf(name, again)] : [];
}

const retryOf = (name: string, run: () => Promise<unknown>): Action => ({
  verb: "Try again",
  title: `Try ${name} again?`,
  does: [
    "Rows that the target now accepts are written to the table.",
    "Rows that it refuses again remain in quarantine, with the new cause.",
  ],
  name,
  run,
  done: `${name}: the accepted rows are in the table.`,
});

const skipOf = (name: string, run: () => Promise<unknown>): Action => ({
  verb: "Leave out",
  title: `Leave out ${name}?`,
  does: [
    "Records that this stays out of the table, with your name.",
    "The values stay listed until a later change of the row, or a reload.",
  ],
  name,
  run,
  done: `${name}: left out.`,
});

/** A retry that put nothing into the table has not done what was asked for. */
async function put(call: Promise<{ data?: RefusedRowsOutcome; error?: unknown; response: Response }>): Promise<void> {
  const { done } = await answer(call);
  if (done.length > 0) return;
  throw new Problem({
    status: 0,
    code: "refused_again",
    title: "The target refused it again",
    detail: "No row was written to the table; the page shows the new cause.",
    remedy: "Correct the value on the source, or change the target so that it accepts the value, and try again.",
  });
}
