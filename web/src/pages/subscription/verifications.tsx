import { useMutation, useQuery } from "@tanstack/react-query";
import { type FormEvent, type ReactNode, useId, useState } from "react";
import { Link } from "wouter";
import { type Action, reload, tablePath } from "../../actions";
import { subscriptionPart, tableAddress } from "../../addresses";
import { answer, client, type Subscription, type Verification, type VerifiedTable } from "../../api/client";
import { keys, VERIFICATIONS_AT_ONCE, verificationsQuery } from "../../api/queries";
import { ActionButtons } from "../../components/actions";
import { announce } from "../../components/announcements";
import { Fact, Facts } from "../../components/facts";
import { Section } from "../../components/page";
import { ProblemNote } from "../../components/problemNote";
import { QueryBoundary } from "../../components/queryBoundary";
import { Remedy } from "../../components/remedy";
import { StatusBadge } from "../../components/statusBadge";
import { Moment } from "../../components/time";
import { count, percent, some } from "../../labels/numbers";
import { qualified, tableStateWords } from "../../labels/tables";
import { durationWords } from "../../labels/typedDuration";
import {
  comparedWords,
  differenceWords,
  keyWords,
  methodWords,
  repairWords,
  rowsWords,
  verificationWords,
  verifiedShareWords,
} from "../../labels/verifications";
import { queryClient } from "../../stream/queryClient";
import { usePermission } from "../../usePermission";
import { Field } from "../freshness/fields";
import { TablePicker } from "../freshness/tablePicker";
import { SubscriptionFrame } from "./frame";

/** Comparisons of the tables with the source: begun, followed, and what they found. */
export function VerificationsPage({ name }: { name: string }) {
  const [trigger, setTrigger] = useState<Verification["trigger"] | null>(null);
  const verifications = useQuery(verificationsQuery(name, trigger));
  const newest = useQuery(verificationsQuery(name));
  // One that the schedule began gives way to a request.
  const underWay = newest.data?.items.some((item) => item.ended_at === null && item.trigger === "user") === true;
  return (
    <SubscriptionFrame name={name} part="verifications">
      {(subscription) => (
        <>
          <Section title="Verify" aside="Both sides, at one position">
            <Begin subscription={subscription} underWay={underWay} />
          </Section>
          <Schedule subscription={subscription} />
          <Section title="Results" aside="Newest first">
            <TriggerChoice value={trigger} onChoose={setTrigger} />
            <QueryBoundary query={verifications}>
              {({ items, next_page_token }) => (
                <>
                  {items.length === 0 && <p className="soft">{NONE[trigger ?? "all"]}</p>}
                  <ol className="history">
                    {items.map((verification) => (
                      <li key={verification.id}>
                        <Entry subscription={name} verification={verification} />
                      </li>
                    ))}
                  </ol>
                  {next_page_token != null && <p className="soft">The newest {count(VERIFICATIONS_AT_ONCE)}; the API lists all of them.</p>}
                </>
              )}
            </QueryBoundary>
          </Section>
        </>
      )}
    </SubscriptionFrame>
  );
}

const NONE = {
  all: "Its tables were never verified.",
  user: "No user has requested one.",
  schedule: "The schedule has begun none.",
};

/** What the schedule is, and how much is verified by it. */
function Schedule({ subscription }: { subscription: Subscription }) {
  const share = verifiedShareWords(subscription);
  const { every_seconds, budget = 0.1 } = subscription.verify;
  return (
    <Section title="Schedule" aside={<Link href={subscriptionPart(subscription.name, "settings")}>Settings</Link>}>
      {every_seconds == null ? (
        <p className="soft">There is none.</p>
      ) : (
        <Facts>
          <Fact name="Each table" note={`in at most ${percent(budget)} of the time`}>
            every {durationWords(every_seconds)}
          </Fact>
          {share !== null && (
            <Fact name="Verified within that time" note={share.note}>
              {share.words}
            </Fact>
          )}
        </Facts>
      )}
    </Section>
  );
}

function TriggerChoice({
  value,
  onChoose,
}: {
  value: Verification["trigger"] | null;
  onChoose: (value: Verification["trigger"] | null) => void;
}) {
  const id = useId();
  return (
    <div className="typed">
      <label htmlFor={id}>Begun by</label>
      <select
        id={id}
        value={value ?? ""}
        onChange={({ target }) => onChoose(target.value === "user" || target.value === "schedule" ? target.value : null)}
      >
        <option value="">users and the schedule</option>
        <option value="user">users</option>
        <option value="schedule">the schedule</option>
      </select>
    </div>
  );
}

interface ShareFieldProps {
  label: string;
  percents: string;
  part: string;
  whole: string;
  onChange: (percents: string) => void;
}

/** The share that a text of percent means; null if it is none above 0 and up to 1. */
function shareOf(percents: string): number | null {
  const share = Number(percents.trim() || Number.NaN) / 100;
  return share > 0 && share <= 1 ? share : null;
}

/** A share typed in percent, with what it means: `part` below 100 %, `whole` at 100 %. */
export function ShareField({ label, percents, part, whole, onChange }: ShareFieldProps) {
  const id = useId();
  const share = shareOf(percents);
  const said = share === null ? "Give a number above 0 and up to 100." : share < 1 ? part : whole;
  return (
    <div className="typed">
      <label htmlFor={id}>{label}</label>
      <span className="with-unit">
        <input
          id={id}
          type="text"
          inputMode="decimal"
          size={5}
          value={percents}
          aria-invalid={share === null}
          aria-describedby={`${id}-hint`}
          onChange={(event) => onChange(event.target.value)}
        />
        <span id={`${id}-hint`} className="soft">
          %. {said}
        </span>
      </span>
    </div>
  );
}

function Begin({ subscription, underWay }: { subscription: Subscription; underWay: boolean }) {
  const { name } = subscription;
  const may = usePermission()("operator");
  const [which, setWhich] = useState<"all" | "some">("all");
  const [picked, setPicked] = useState<ReadonlySet<string>>(new Set());
  const [method, setMethod] = useState<Verification["method"]>("rows");
  const [repair, setRepair] = useState<Verification["repair"]>("none");
  const [sample, setSample] = useState("100");
  const [budget, setBudget] = useState("100");
  const begin = useMutation({
    mutationFn: () => {
      const tables = which === "some" ? [...picked].map((key) => JSON.parse(key) as { schema: string; name: string }) : null;
      return answer(
        client.POST("/api/v1/subscriptions/{name}/verifications", {
          params: { path: { name } },
          body: { tables, method: method ?? "rows", repair, sample: shareOf(sample) ?? 1, budget: shareOf(budget) ?? 1 },
        }),
      );
    },
    onSuccess: async () => {
      announce(`${name}: a verification was requested.`);
      await queryClient.invalidateQueries({ queryKey: keys.ofSubscription(name) });
    },
  });
  const share = shareOf(sample);
  const ready = may && !underWay && !begin.isPending && share !== null && shareOf(budget) !== null && (which === "all" || picked.size > 0);
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (ready) begin.mutate();
  };
  return (
    <form className="ask" onSubmit={submit}>
      <Field legend="Which tables">
        <label className="check">
          <input type="radio" name="verified" checked={which === "all"} onChange={() => setWhich("all")} />
          every live table
        </label>
        <label className="check">
          <input type="radio" name="verified" checked={which === "some"} onChange={() => setWhich("some")} />
          those that I name
        </label>
        {which === "some" && <TablePicker subscription={name} picked={picked} onPick={setPicked} />}
      </Field>
      <Field legend="How">
        <label className="check">
          <input type="radio" name="method" checked={method === "rows"} onChange={() => setMethod("rows")} />
          by rows: all of them are read from the source
        </label>
        <label className="check">
          <input type="radio" name="method" checked={method === "checksum"} onChange={() => setMethod("checksum")} />
          by checksum: both sides compute them, and only rows of ranges that differ are read
        </label>
      </Field>
      <Field legend="How much">
        <ShareField
          label="Share of each table"
          percents={sample}
          part="In ranges of keys that are chosen at random. It does not verify the tables as a whole."
          whole="All rows are compared."
          onChange={setSample}
        />
        <ShareField
          label="Share of the time"
          percents={budget}
          part="It rests in between, so that others wait less. It takes longer by as much, and keeps its snapshots of both sides for as long."
          whole="Without rests."
          onChange={setBudget}
        />
      </Field>
      <Field legend="Rows that differ">
        {REPAIRS.map(([mode, words]) => (
          <label className="check" key={mode}>
            <input type="radio" name="repair" checked={repair === mode} onChange={() => setRepair(mode)} />
            {words}
          </label>
        ))}
      </Field>
      <p className="prose soft">
        {share === null || share < 1 ? "Rows" : "All rows"} of the tables on {subscription.source} and {subscription.target} are compared,
        while the replication continues. The snapshot on the source waits for transactions that are open when it is requested.
        {repair === "apply" &&
          " Rows that differ are replaced by the source's in one transaction; the target keeps what was changed in penstock.repaired_rows."}
      </p>
      <div className="ask-foot">
        {may && (
          <button type="submit" className="primary" disabled={!ready}>
            {begin.isPending ? "Asking …" : repair === "apply" ? "Verify and repair" : "Verify"}
          </button>
        )}
        <span className="soft" role="status">
          {may ? (underWay ? "A verification is under way." : "") : "Verifications require an operator's token; yours is read-only."}
        </span>
      </div>
      {begin.error !== null && (
        <div className="whole">
          <ProblemNote error={begin.error} />
        </div>
      )}
    </form>
  );
}

const REPAIRS: readonly [Verification["repair"], string][] = [
  ["none", "are listed"],
  ["preview", "are listed, with what a repair would write"],
  ["apply", "are replaced by the source's rows"],
];

/** One verification: how far it is, or what it found. */
export function Entry({ subscription, verification }: { subscription: string; verification: Verification }) {
  const { tone, word } = verificationWords(verification);
  const { tables, left_out, position, problem, ended_at } = verification;
  const different = tables.filter((table) => !table.equal || table.repaired != null);
  const equal = tables.filter((table) => table.equal && table.repaired == null);
  return (
    <>
      <span className="when">
        <Moment at={verification.created_at} />
      </span>
      <StatusBadge tone={tone}>{word}</StatusBadge>
      <div>
        {ended_at === null && <Progress subscription={subscription} verification={verification} />}
        {ended_at !== null && (
          <p>
            {verification.trigger === "schedule" && tables[0] !== undefined ? (
              <>
                <Name subscription={subscription} table={tables[0]} /> compared by the schedule
              </>
            ) : (
              comparedWords({ tables_done: tables.length, tables_total: null })
            )}
            {position !== null && (
              <>
                {" "}
                at <code>{position}</code>
              </>
            )}
            , ended <Moment at={ended_at} />
          </p>
        )}
        {typeof problem?.detail === "string" && <p>{problem.detail}</p>}
        {typeof problem?.remedy === "string" && <Remedy text={problem.remedy} here="subscription" className="soft" />}
        {different.map((table) => (
          <Different key={table.id} subscription={subscription} table={table} />
        ))}
        <Rest title={`${some(equal.length, "equal table")}`} number={equal.length}>
          {equal.map((table) => (
            <li key={table.id}>
              <Name subscription={subscription} table={table} />, {some(table.source_rows, "row")}, {methodWords(table)}
            </li>
          ))}
        </Rest>
        <Rest title={`${some(left_out.length, "table")} not compared`} number={left_out.length}>
          {left_out.map((table) => (
            <li key={table.id}>
              <Name subscription={subscription} table={table} />: {tableStateWords(table.state).word}
              {table.reason !== null && `, ${table.reason}`}
            </li>
          ))}
        </Rest>
      </div>
    </>
  );
}

function Progress({ subscription, verification }: { subscription: string; verification: Verification }) {
  const { tables_done, tables_total } = verification;
  return (
    <>
      <div className="copy">
        <progress aria-label="Tables compared" {...(tables_total === null ? {} : { value: tables_done, max: Math.max(1, tables_total) })} />
        <span>
          {comparedWords(verification)}
          {verification.trigger === "schedule" && " by the schedule"}
        </span>
      </div>
      <div className="actions">
        <ActionButtons actions={[cancelling(subscription, verification)]} />
      </div>
    </>
  );
}

const cancelling = (subscription: string, { id }: Verification): Action => ({
  verb: "Cancel",
  title: `Cancel the verification of ${subscription}?`,
  does: ["Tables that it has compared stay listed; the others are not compared."],
  name: `the verification of ${subscription}`,
  run: () =>
    answer(
      client.DELETE("/api/v1/subscriptions/{name}/verifications/{verification_id}", {
        params: { path: { name: subscription, verification_id: id } },
      }),
    ),
  done: `${subscription}: the verification was cancelled.`,
});

type Compared = Pick<VerifiedTable, "id" | "schema" | "name">;

/** A table that was removed for good has only its id. */
const nameOf = ({ id, schema, name }: Compared): string => (schema === null || name === null ? id : qualified({ schema, name }));

const Name = ({ subscription, table }: { subscription: string; table: Compared }) => (
  <Link href={tableAddress(subscription, table.id)}>{nameOf(table)}</Link>
);

function Different({ subscription, table }: { subscription: string; table: VerifiedTable }) {
  const { differing, set_aside = 0, equal } = table;
  return (
    <div className="different">
      <p>
        <strong>
          <Name subscription={subscription} table={table} />
        </strong>
        : {rowsWords(table)}
        {set_aside > 0 && `; ${some(set_aside, "quarantined row")} of the target are known differences`}
      </p>
      <p className="soft">Compared {methodWords(table)}</p>
      {repairWords(table).map((words) => (
        <p key={words}>{words}</p>
      ))}
      {differing.length > 0 && (
        <details>
          <summary>
            {some(differing.length, "row")} that {equal ? "differed" : "differ"}
            {differing.length >= 100 ? ", the first ones" : ""}
          </summary>
          <table className="ledger columns">
            <caption className="unseen">Rows of {nameOf(table)} that differ</caption>
            <thead>
              <tr>
                <th scope="col">Key</th>
                <th scope="col">How</th>
              </tr>
            </thead>
            <tbody>
              {differing.map(({ key, kind, columns = [] }) => (
                <tr key={`${kind} ${JSON.stringify(key)}`}>
                  <th scope="row" data-column="Key">
                    <code>{keyWords(key)}</code>
                  </th>
                  <td data-column="How">{differenceWords(kind, columns)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </details>
      )}
      {!equal && (
        <div className="actions">
          <ActionButtons actions={[reload(nameOf(table), async () => tablePath(subscription, table.id))]} />
        </div>
      )}
    </div>
  );
}

/** What needs no attention, on request. */
function Rest({ title, number, children }: { title: string; number: number; children: ReactNode }) {
  if (number === 0) return null;
  return (
    <details>
      <summary>{title}</summary>
      <ul className="changes">{children}</ul>
    </details>
  );
}
