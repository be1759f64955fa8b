import { useState } from "react";
import type { Subscription } from "../../api/client";
import { writeExactly } from "../../api/exactNumbers";
import type { QueryAnswer } from "../../api/freshness";
import { Fact, Facts } from "../../components/facts";
import { Pager } from "../../components/pager";
import { StatusBadge } from "../../components/statusBadge";
import { Moment } from "../../components/time";
import { milliseconds } from "../../labels/durations";
import { some } from "../../labels/numbers";
import { staleWords } from "../../labels/receipts";
import { Covered, LeftOut } from "./receipt";

const AT_ONCE = 100;

/** How many rows came. */
export const AnswerSummary = ({ answer: { rows, truncated } }: { answer: QueryAnswer }) => (
  <p className="answer-summary">
    {some(rows.length, "row")}
    {truncated && "; more rows exist"}
  </p>
);

interface AnswerViewProps {
  subscription: Subscription;
  answer: QueryAnswer;
  /** Whose state the rows are; null: the target's. */
  readPoint: string | null;
  tookMs: number;
}

/** The rows of a query, and where and at which position it ran. */
export function AnswerView({ subscription, answer, readPoint, tookMs }: AnswerViewProps) {
  const [page, setPage] = useState(0);
  const { columns, rows, receipt, stale } = answer;
  const [place, kind] = ranOn(subscription, answer.ran_on);
  return (
    <>
      <Facts>
        <Fact name="Ran on" note={kind}>
          {place}
        </Fact>
        <Fact name="At position">
          <code>{answer.position}</code>
        </Fact>
        {readPoint !== null ? (
          <Fact name="Read point">{readPoint}</Fact>
        ) : receipt == null ? (
          <Fact name="Freshness">{stale == null ? "as it was" : "older than requested"}</Fact>
        ) : (
          <Fact name="Freshness" note={receipt.on_arrival ? "visible already" : <CommittedAt receipt={receipt} />}>
            <code>{receipt.position}</code>
          </Fact>
        )}
        <Fact name="Took" note="measured in this browser">
          {milliseconds(tookMs)}
        </Fact>
      </Facts>
      {stale != null && (
        <p className="below">
          <StatusBadge tone="warn">{staleWords(stale)}</StatusBadge>
        </p>
      )}
      {receipt == null ? (
        <div className="covered">
          <LeftOut tables={answer.left_out ?? []} />
        </div>
      ) : (
        <Covered receipt={receipt} />
      )}
      <Rows columns={columns} rows={rows.slice(page * AT_ONCE, (page + 1) * AT_ONCE)} />
      <Pager page={page} size={AT_ONCE} total={rows.length} noun="rows" onPage={setPage} />
    </>
  );
}

const CommittedAt = ({ receipt }: { receipt: NonNullable<QueryAnswer["receipt"]> }) =>
  receipt.committed_at === null ? (
    <>waited for</>
  ) : (
    <>
      waited for; committed at <Moment at={receipt.committed_at} parts="time" />
    </>
  );

function ranOn({ source, target }: Subscription, where: string): [string, string] {
  if (where === "target") return [target, "the target"];
  return where === "source" ? [source, "the source"] : ["unknown", where];
}

type RowsProps = Pick<QueryAnswer, "columns" | "rows">;

/** They scroll sideways where there is no room; the keyboard gets there too. */
function Rows({ columns, rows }: RowsProps) {
  if (columns.length === 0) return null;
  const numeric = columns.map(({ type }, place) => DECIMAL.test(type) || isNumber(rows, place));
  return (
    <div className="rows" role="region" aria-label="Rows of the answer" tabIndex={0}>
      <table>
        <thead>
          <tr>
            {columns.map(({ name, type }, place) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: two columns of an answer may have the same name.
              <th key={place} scope="col" className={numeric[place] === true ? "number" : undefined}>
                {name}
                <small>{type}</small>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, number) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: rows of an answer have no identity.
            <tr key={number}>
              {row.map((value, place) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: as above, in the order of the columns.
                <td key={place} className={numeric[place] === true ? "number" : undefined}>
                  <Value value={value} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Their values come as text, so that no digit is lost. */
const DECIMAL = /^(decimal|numeric|hugeint|uhugeint)/i;

function isNumber(rows: unknown[][], place: number): boolean {
  const first = rows.find((row) => row[place] !== null)?.[place];
  return typeof first === "number" || typeof first === "bigint";
}

function Value({ value }: { value: unknown }) {
  if (value === null) return <span className="no-value">null</span>;
  if (value === "") return <span className="no-value">empty text</span>;
  return <>{typeof value === "string" ? value : writeExactly(value)}</>;
}
