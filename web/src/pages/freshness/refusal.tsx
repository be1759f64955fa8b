import { Link } from "wouter";
import { subscriptionAddress } from "../../addresses";
import { Facts } from "../../parts/facts";
import { ProblemNote } from "../../parts/problemNote";
import { milliseconds } from "../../words/durations";
import { inPlainWords } from "../../words/refusals";

/** Why a wait or a query was not answered, what can be done about it, and how far it was. */
export function Refusal({ error, subscription }: { error: unknown; subscription: string }) {
  const problem = inPlainWords(error);
  const { position, applied, waited_ms: waitedMs } = problem.body;
  const aboutFreshness = problem.code.startsWith("freshness_");
  return (
    <>
      <ProblemNote error={problem} />
      {aboutFreshness && (
        <>
          <Facts
            facts={[
              typeof position === "string" ? ["Wanted", <code>{position}</code>] : null,
              typeof applied === "string" ? ["Visible on the target up to", <code>{applied}</code>] : null,
              typeof waitedMs === "number" ? ["Waited", milliseconds(waitedMs)] : null,
            ]}
          />
          <p className="below">
            <Link href={subscriptionAddress(subscription)}>Look at {subscription}</Link>
          </p>
        </>
      )}
    </>
  );
}
