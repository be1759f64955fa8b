import { Link } from "wouter";
import { subscriptionAddress } from "../../addresses";
import { Fact, Facts } from "../../components/facts";
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
          <Facts>
            {typeof position === "string" && (
              <Fact name="Wanted">
                <code>{position}</code>
              </Fact>
            )}
            {typeof applied === "string" && (
              <Fact name="Visible on the target up to">
                <code>{applied}</code>
              </Fact>
            )}
            {typeof waitedMs === "number" && <Fact name="Waited">{milliseconds(waitedMs)}</Fact>}
          </Facts>
          <p className="below">
            <Link href={subscriptionAddress(subscription)}>Look at {subscription}</Link>
          </p>
        </>
      )}
    </>
  );
}
