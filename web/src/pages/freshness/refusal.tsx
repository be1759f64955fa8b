import { Link } from "wouter";
import { subscriptionAddress } from "../../addresses";
import { Facts } from "../../components/facts";
import { ProblemNote } from "../../components/problemNote";
import { milliseconds } from "../../labels/durations";
import { inPlainWords } from "../../labels/refusals";

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
