import { Link } from "wouter";
import { FLEET } from "../addresses";
import { Page } from "../components/page";

export function NothingHerePage() {
  return (
    <Page title="Nothing is here">
      <p className="prose">
        No page has this address. <Link href={FLEET}>To the fleet</Link>
      </p>
    </Page>
  );
}
