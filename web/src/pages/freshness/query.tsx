import { type FormEvent, type KeyboardEvent, type ReactNode, type RefObject, useState } from "react";
import type { Subscription } from "../../api/client";
import { type QueryRequest, runQuery } from "../../api/freshness";
import { UnderWay } from "../../components/underWay";
import { typedMs } from "../../labels/durations";
import { useStoppable } from "../../stoppable";
import { AnswerSummary, AnswerView } from "./answer";
import { Field, PositionField, SecondsField } from "./fields";
import { Refusal } from "./refusal";

type Mode = "latest" | "position" | "any";

/** How fresh an answer has to be; the position counts with its mode only. */
export interface FreshnessWish {
  mode: Mode;
  position: string;
}

interface WishProps {
  wish: FreshnessWish;
  onWish: (wish: FreshnessWish) => void;
}

interface QuerySectionProps extends WishProps {
  subscription: Subscription;
  sqlBox: RefObject<HTMLTextAreaElement | null>;
}

/** Runs one read on the target, as fresh as asked for, and shows its rows. */
export function QuerySection({ subscription, wish, onWish, sqlBox }: QuerySectionProps) {
  const query = useStoppable(async (body: QueryRequest, signal) => {
    const begun = performance.now();
    const answer = await runQuery(subscription.name, body, signal);
    return { answer, tookMs: performance.now() - begun };
  });
  return (
    <>
      <QueryForm wish={wish} onWish={onWish} sqlBox={sqlBox} pending={query.pending} onRun={query.begin}>
        <UnderWay doing="Asking" verb="Cancel" work={query} />
      </QueryForm>
      <div className="outcome">
        <div role="status">
          {query.stopped && <p className="soft">Its answer is not waited for any more.</p>}
          {query.found !== undefined && <AnswerSummary answer={query.found.answer} />}
        </div>
        {query.error !== null && <Refusal error={query.error} subscription={subscription.name} />}
        {query.found !== undefined && <AnswerView key={query.begunAt} subscription={subscription} {...query.found} />}
      </div>
    </>
  );
}

interface QueryFormProps extends WishProps {
  sqlBox: RefObject<HTMLTextAreaElement | null>;
  pending: boolean;
  onRun: (body: QueryRequest) => void;
  children: ReactNode;
}

const MOST_ROWS = 100_000;

function QueryForm({ wish, onWish, sqlBox, pending, onRun, children }: QueryFormProps) {
  const [sql, setSql] = useState("");
  const [freshLimit, setFreshLimit] = useState("10");
  const [limit, setLimit] = useState("30");
  const [rows, setRows] = useState("1000");
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (pending) return;
    onRun({
      sql,
      freshness: {
        mode: wish.mode,
        position: wish.mode === "position" ? wish.position.trim() : null,
        timeout_ms: typedMs(freshLimit),
        on_timeout: "error",
      },
      max_rows: Number(rows),
      timeout_ms: typedMs(limit),
    });
  };
  return (
    <form className="ask" onSubmit={submit}>
      <div className="typed whole">
        <label htmlFor="sql">One SELECT in the target's SQL</label>
        <textarea
          id="sql"
          ref={sqlBox}
          className="code"
          rows={4}
          required
          value={sql}
          placeholder="SELECT count(*) FROM public.orders"
          autoComplete="off"
          autoCapitalize="off"
          spellCheck={false}
          aria-describedby="sql-hint"
          onKeyDown={runOnEnter}
          onChange={(event) => setSql(event.target.value)}
        />
        <small id="sql-hint">Ctrl + Enter runs it. Use the tables' names on the target.</small>
      </div>
      <WishField wish={wish} onWish={onWish} />
      <div className="limits">
        <SecondsField label="Maximum wait" value={freshLimit} least={0} disabled={wish.mode === "any"} onChange={setFreshLimit} />
        <SecondsField label="Maximum run time" value={limit} least={0.001} onChange={setLimit} />
        <div className="typed">
          <label htmlFor="rows">Maximum rows</label>
          <span className="with-unit">
            <input
              id="rows"
              type="number"
              inputMode="numeric"
              min={1}
              max={MOST_ROWS}
              required
              value={rows}
              aria-describedby="rows-unit"
              onChange={(event) => setRows(event.target.value)}
            />
            <span id="rows-unit" className="soft">
              rows
            </span>
          </span>
        </div>
      </div>
      <div className="ask-foot">
        <button type="submit" className="primary" aria-disabled={pending}>
          Run
        </button>
        {children}
      </div>
    </form>
  );
}

function runOnEnter(event: KeyboardEvent<HTMLTextAreaElement>): void {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  event.currentTarget.form?.requestSubmit();
}

const MODES: [Mode, string][] = [
  ["latest", "everything committed on the source until now"],
  ["position", "everything up to a position"],
  ["any", "the current rows, without waiting"],
];

function WishField({ wish, onWish }: WishProps) {
  return (
    <Field legend="Required freshness">
      {MODES.map(([mode, label]) => (
        <label key={mode} className="check">
          <input type="radio" name="mode" checked={wish.mode === mode} onChange={() => onWish({ ...wish, mode })} />
          {label}
        </label>
      ))}
      {wish.mode === "position" && <PositionField value={wish.position} onChange={(position) => onWish({ ...wish, position })} />}
    </Field>
  );
}
