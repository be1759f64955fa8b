import { Link } from "wouter";
import { FLEET } from "../addresses";
import { Page } from "../components/page";

export function NothingHerePage() {
  return (
    <Page title="Page not found">
      <p className="prose">
        There is no page at this address. <Link href={FLEET}>To the fleet</Link>
      </p>
    </Page>
  );
}
