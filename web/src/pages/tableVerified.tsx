import { Link } from "wouter";
import { subscriptionPart } from "../addresses";
import type { Table } from "../api/client";
import { Fact, Facts } from "../components/facts";
import { Section } from "../components/page";
import { Remedy } from "../components/remedy";
import { StatusBadge } from "../components/statusBadge";
import { Ago, Moment } from "../components/time";
import { count, some } from "../labels/numbers";
import { comparisonWords, methodWords, rowsWords } from "../labels/verifications";

/** Up to which position a table is verified, when and how; or why it could not be compared. */
export function TableVerified({ subscription, table }: { subscription: string; table: Table }) {
  const { verified, verification_problem: problem } = table;
  return (
    <Section title="Verification" aside={<Link href={subscriptionPart(subscription, "verifications")}>Verifications</Link>}>
      {verified == null ? <p className="soft">It was not compared with the source yet.</p> : <Last verified={verified} />}
      {problem != null && (
        <>
          <p className="prose">
            The schedule could not compare it, {some(problem.attempts, "time")} so far: {problem.detail} It is tried again after{" "}
            <Moment at={problem.retry_at} />.
          </p>
          {problem.remedy !== null && <Remedy text={problem.remedy} here="table" className="soft" />}
        </>
      )}
    </Section>
  );
}

function Last({ verified }: { verified: NonNullable<Table["verified"]> }) {
  const { tone, word } = comparisonWords(verified);
  const sampled = (verified.sample ?? 1) < 1;
  return (
    <Facts>
      <Fact name="State" note={verified.before_copy ? "its rows were copied after the comparison" : undefined}>
        <StatusBadge tone={tone}>{word}</StatusBadge>
      </Fact>
      <Fact name={verified.equal && !sampled ? "Verified up to position" : "Compared at position"} note={methodWords(verified)}>
        {verified.position === null ? "–" : <code>{verified.position}</code>}
      </Fact>
      <Fact name="At" note={<Ago at={verified.at} />}>
        <Moment at={verified.at} />
      </Fact>
      {sampled && <Fact name="Compared as a whole">{verified.whole_at == null ? "never" : <Moment at={verified.whole_at} />}</Fact>}
      <Fact name="Rows">{verified.source_rows === verified.target_rows ? count(verified.source_rows) : rowsWords(verified)}</Fact>
    </Facts>
  );
}
