import { describe, expect, it } from "vitest";
import type { AlertChannel } from "../api/alerts";
import { bodyOf, causeWords, kindTitle, newSigningKey, receiverOf, type Typed, typedOf } from "./alerts";

const CHANNEL: AlertChannel = {
  name: "ops",
  kind: "email",
  settings: { host: "mail.test", port: 25, security: "tls", sender: "a@test", recipients: ["b@test", "c@test"] },
  secrets_set: ["password"],
  causes: ["fault"],
  subscriptions: ["shop"],
  repeat_seconds: 5400,
  delivered_at: null,
  last_error: null,
  created_at: "2026-05-04T10:00:00Z",
  updated_at: "2026-05-04T10:00:00Z",
};
const typed = (changes: Partial<Typed> = {}): Typed => ({ ...typedOf(null), ...changes });

describe("an alert channel", () => {
  it("comes back from the form as it was, and keeps its secret", () => {
    const { name, secrets_set, delivered_at, last_error, created_at, updated_at, ...declared } = CHANNEL;
    expect(bodyOf(typedOf(CHANNEL))).toEqual({ ...declared, secrets: {} });
  });

  it("has an entered secret, or none, in place of the one that is set", () => {
    expect(bodyOf(typed({ kind: "slack", secret: "https://hooks.test/x", url: "https://left.over" }))).toMatchObject({
      settings: {},
      secrets: { url: "https://hooks.test/x" },
    });
    expect(bodyOf({ ...typedOf(CHANNEL), noSecret: true }).secrets).toEqual({ password: null });
  });

  it("takes recipients in any usual list, and no empty ones", () => {
    const mail = typed({ kind: "email", recipients: " a@test, b@test;\n\nc@test " });
    expect(bodyOf(mail).settings).toMatchObject({ recipients: ["a@test", "b@test", "c@test"], port: 587 });
  });

  it("names where its notices go, but no secret address", () => {
    expect(receiverOf(CHANNEL)).toBe("b@test, c@test by mail.test");
    expect(receiverOf({ ...CHANNEL, kind: "webhook", settings: { url: "https://ops.test" } })).toBe("https://ops.test");
    expect(receiverOf({ ...CHANNEL, kind: "slack", settings: {} })).toBeNull();
  });

  it("has words for kinds and causes of a newer server", () => {
    expect([kindTitle("pager"), causeWords("disk_full")]).toEqual(["pager", "disk full"]);
  });
});

it("a signing key is long and never the same", () => {
  const [one, two] = [newSigningKey(), newSigningKey()];
  expect(one).toMatch(/^[0-9a-f]{64}$/);
  expect(one).not.toBe(two);
});
