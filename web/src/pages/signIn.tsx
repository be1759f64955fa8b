import { type FormEvent, useId, useState } from "react";
import { Page } from "../components/page";
import { StatusBadge } from "../components/statusBadge";
import { session, signIn } from "../session";
import { useStore } from "../store";

export function SignInPage() {
  const { wrong } = useStore(session);
  const [typed, setTyped] = useState("");
  const id = useId();
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (typed.trim() !== "") signIn(typed.trim());
  };
  return (
    <Page title="Sign in">
      <form className="sign-in" onSubmit={submit}>
        <label htmlFor={id}>Token</label>
        <input
          id={id}
          type="password"
          value={typed}
          autoComplete="off"
          spellCheck={false}
          required
          aria-describedby={`${id}-hint`}
          aria-invalid={wrong && typed === ""}
          onChange={(event) => setTyped(event.target.value)}
        />
        <p id={`${id}-hint`} className="soft">
          The tabs of this browser share it, and it is forgotten with the last of them. The first start of the server prints one;{" "}
          <code>penstock token create</code> makes more.
        </p>
        {wrong && (
          <p role="alert">
            <StatusBadge tone="bad">The server does not take that token.</StatusBadge>
          </p>
        )}
        <button type="submit" className="primary">
          Show the console
        </button>
      </form>
    </Page>
  );
}
