import { Link } from "wouter";
import { NEW_SUBSCRIPTION } from "../../addresses";
import { usePermission } from "../../usePermission";
import { SampleSourcePart } from "./sampleSource";

/** What an empty installation shows: two ways to a first subscription. */
export function FirstStart() {
  const may = usePermission();
  if (!may("operator"))
    return <p className="prose">There is no subscription yet. Making one needs a token of an operator; yours is read-only.</p>;
  return (
    <>
      <p className="prose">
        There is no subscription yet. One is a source, a target, and the tables that are kept fresh on it. It takes a minute or two to make
        one.
      </p>
      <div className="first-start">
        <section aria-label="With your own source">
          <h2>With a database of your own</h2>
          <p>
            A PostgreSQL from version 14 on, with <code>wal_level = logical</code>, and a user that may replicate. What is missing is found
            before anything is made, and how to mend it is said. Its tables and rows stay as they are.
          </p>
          <div className="actions">
            <Link href={NEW_SUBSCRIPTION} className="button primary">
              New subscription
            </Link>
          </div>
        </section>
        <section aria-label="With the sample database">
          <h2>With a sample, to look around</h2>
          <p>
            The server runs a small shop of nine tables, with orders coming in all the time, on its own machine; the engine has to be there,
            too. You can remove it whenever you like.
          </p>
          <SampleSourcePart />
        </section>
      </div>
      <p className="soft prose">
        From the command line it is <code>penstock apply FILE</code>; for programs, <code>PUT /api/v1/subscriptions/NAME</code>.
      </p>
    </>
  );
}
