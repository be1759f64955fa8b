import type { FormEvent, KeyboardEvent, ReactNode, RefObject } from "react";
import type { QueryRequest } from "../../api/freshness";
import { typedMs } from "../../labels/durations";
import { NO_VALUE, type Parameter, parameterCount, parameterValues } from "../../labels/parameters";
import { SecondsField } from "./fields";
import { FRESHNESS_MODES, FreshnessField, type FreshnessMode, type FreshnessWish } from "./freshnessField";
import { ReadPointField } from "./readPointField";

type Freshness = NonNullable<QueryRequest["freshness"]>;
export type OnTimeout = NonNullable<Freshness["on_timeout"]>;
export type OnUnavailable = NonNullable<Freshness["on_unavailable"]>;

/** How fresh an answer has to be, or at which read point it is. */
export interface QueryWish extends FreshnessWish<FreshnessMode | "read_point"> {
  /** The name; counts with its mode only. */
  readPoint: string;
}

/** What is typed and chosen, but for the freshness. */
export interface Draft {
  sql: string;
  parameters: Parameter[];
  onTimeout: OnTimeout;
  onUnavailable: OnUnavailable;
  refuseEarly: boolean;
  /** In seconds. */
  freshLimit: string;
  limit: string;
  rows: string;
}

export const EMPTY: Draft = {
  sql: "",
  parameters: [],
  onTimeout: "error",
  onUnavailable: "error",
  refuseEarly: false,
  freshLimit: "10",
  limit: "30",
  rows: "1000",
};

const MOST_ROWS = 100_000;

function requestOf(draft: Draft, wish: QueryWish): QueryRequest {
  return {
    sql: draft.sql,
    parameters: parameterValues(draft.sql, draft.parameters),
    freshness: {
      mode: wish.mode === "read_point" ? "any" : wish.mode,
      position: wish.mode === "position" ? wish.position.trim() : null,
      timeout_ms: typedMs(draft.freshLimit),
      on_timeout: draft.onTimeout,
      on_unavailable: unavailable(draft, wish),
      refuse_early: draft.refuseEarly,
    },
    read_point: wish.mode === "read_point" ? wish.readPoint : null,
    max_rows: Number(draft.rows),
    timeout_ms: typedMs(draft.limit),
  };
}

/** A read point is on the target only. */
const unavailable = ({ onUnavailable }: Draft, { mode }: QueryWish): OnUnavailable =>
  mode === "read_point" && onUnavailable === "source" ? "error" : onUnavailable;

interface QueryFormProps {
  subscription: string;
  draft: Draft;
  onDraft: (draft: Draft) => void;
  wish: QueryWish;
  onWish: (wish: QueryWish) => void;
  sqlBox: RefObject<HTMLTextAreaElement | null>;
  pending: boolean;
  onRun: (body: QueryRequest) => void;
  children: ReactNode;
}

/** A statement with its values, the freshness that it wants, and its limits. */
export function QueryForm({ subscription, draft, onDraft, wish, onWish, sqlBox, pending, onRun, children }: QueryFormProps) {
  const set = (changes: Partial<Draft>): void => onDraft({ ...draft, ...changes });
  const waits = wish.mode === "latest" || wish.mode === "position";
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (!pending) onRun(requestOf(draft, wish));
  };
  return (
    <form className="ask" onSubmit={submit}>
      <div className="typed whole">
        <label htmlFor="sql">One SELECT in the target's SQL</label>
        <textarea
          id="sql"
          ref={sqlBox}
          className="code"
          rows={6}
          required
          value={draft.sql}
          placeholder="SELECT count(*) FROM public.orders"
          autoComplete="off"
          autoCapitalize="off"
          spellCheck={false}
          aria-describedby="sql-hint"
          onKeyDown={runOnEnter}
          onChange={(event) => set({ sql: event.target.value })}
        />
        <small id="sql-hint">Ctrl + Enter runs it. Use the tables' names on the target; $1, $2 … are parameters.</small>
      </div>
      <Parameters sql={draft.sql} typed={draft.parameters} onChange={(parameters) => set({ parameters })} />
      <FreshnessField wish={wish} modes={MODES} onWish={onWish}>
        {wish.mode === "read_point" && (
          <ReadPointField subscription={subscription} value={wish.readPoint} onChange={(readPoint) => onWish({ ...wish, readPoint })} />
        )}
      </FreshnessField>
      <div className="limits">
        <SecondsField
          label="Maximum wait"
          value={draft.freshLimit}
          least={0}
          disabled={!waits}
          onChange={(freshLimit) => set({ freshLimit })}
        />
        <SecondsField label="Maximum run time" value={draft.limit} least={0.001} onChange={(limit) => set({ limit })} />
        <RowsField value={draft.rows} onChange={(rows) => set({ rows })} />
      </div>
      <Otherwise draft={draft} wish={wish} waits={waits} onChange={set} />
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

const MODES: [QueryWish["mode"], string][] = [...FRESHNESS_MODES, ["read_point", "those of a read point"]];

const AT_DEADLINE: [OnTimeout, string][] = [
  ["error", "the query fails"],
  ["stale", "it returns the rows that the target has, with their age"],
  ["source", "it runs on the source"],
];

const WHILE_NOT_FOLLOWING: [OnUnavailable, string][] = [
  ["error", "the query is refused"],
  ["include", "it returns the existing rows, and names the table"],
  ["source", "it runs on the source"],
];

interface OtherwiseProps {
  draft: Draft;
  wish: QueryWish;
  /** Else there is no deadline to miss. */
  waits: boolean;
  onChange: (changes: Partial<Draft>) => void;
}

/** What happens if the target does not have the wanted rows. */
function Otherwise({ draft, wish, waits, onChange }: OtherwiseProps) {
  return (
    <div className="otherwise whole">
      <Choice
        label="If they are not there at the end of the wait"
        value={draft.onTimeout}
        choices={AT_DEADLINE}
        disabled={!waits}
        onChange={(onTimeout) => onChange({ onTimeout })}
      />
      <Choice
        label="If a table does not follow its source"
        value={unavailable(draft, wish)}
        choices={WHILE_NOT_FOLLOWING.filter(([value]) => value !== "source" || wish.mode !== "read_point")}
        onChange={(onUnavailable) => onChange({ onUnavailable })}
      />
      <label className="check">
        <input
          type="checkbox"
          checked={draft.refuseEarly}
          disabled={!waits}
          onChange={(event) => onChange({ refuseEarly: event.target.checked })}
        />
        End the wait at once if it is expected to be too long
      </label>
    </div>
  );
}

interface ChoiceProps<Value extends string> {
  label: string;
  value: Value;
  choices: [Value, string][];
  disabled?: boolean;
  onChange: (value: Value) => void;
}

const Choice = <Value extends string>({ label, value, choices, disabled = false, onChange }: ChoiceProps<Value>) => (
  <label className="typed">
    <span>{label}</span>
    <select value={value} disabled={disabled} onChange={(event) => onChange(event.target.value as Value)}>
      {choices.map(([each, words]) => (
        <option key={each} value={each}>
          {words}
        </option>
      ))}
    </select>
  </label>
);

interface ParametersProps {
  sql: string;
  typed: Parameter[];
  onChange: (typed: Parameter[]) => void;
}

/** A value for each `$n` of the statement. */
function Parameters({ sql, typed, onChange }: ParametersProps) {
  const count = parameterCount(sql);
  if (count === 0) return null;
  const all = Array.from({ length: count }, (_, at) => typed[at] ?? NO_VALUE);
  const set = (at: number, changes: Partial<Parameter>): void => {
    const next = Array.from({ length: Math.max(count, typed.length) }, (_, each) => typed[each] ?? NO_VALUE);
    next[at] = { ...(next[at] ?? NO_VALUE), ...changes };
    onChange(next);
  };
  return (
    <fieldset className="field whole parameters">
      <legend>Parameters</legend>
      {all.map(({ text, isNull }, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: a parameter is its number.
        <div key={at} className="with-unit">
          <label>
            <code>${at + 1}</code>
            <input
              value={isNull ? "" : text}
              disabled={isNull}
              autoComplete="off"
              spellCheck={false}
              onChange={(event) => set(at, { text: event.target.value })}
            />
          </label>
          <label className="check">
            <input
              type="checkbox"
              checked={isNull}
              aria-label={`$${at + 1} is NULL`}
              onChange={(event) => set(at, { isNull: event.target.checked })}
            />
            NULL
          </label>
        </div>
      ))}
    </fieldset>
  );
}

const RowsField = ({ value, onChange }: { value: string; onChange: (value: string) => void }) => (
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
        value={value}
        aria-describedby="rows-unit"
        onChange={(event) => onChange(event.target.value)}
      />
      <span id="rows-unit" className="soft">
        rows
      </span>
    </span>
  </div>
);
