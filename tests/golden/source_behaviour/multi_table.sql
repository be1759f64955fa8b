-- replicate accounts
-- replicate transfers
-- replicate audit
-- setup
CREATE TABLE accounts (id int PRIMARY KEY, balance numeric(12, 2));
CREATE TABLE transfers (id int PRIMARY KEY, from_id int REFERENCES accounts, to_id int REFERENCES accounts, amount numeric(12, 2));
CREATE TABLE audit (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, what text);
INSERT INTO accounts SELECT g, 100 FROM generate_series(1, 20) g;
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO audit (what) VALUES (TG_OP || ' ' || NEW.id);
  RETURN NEW;
END $$;
DO $$ BEGIN
EXECUTE format('ALTER FUNCTION note() SET search_path = %I', current_schema());
END $$;
CREATE TRIGGER noted AFTER INSERT ON transfers FOR EACH ROW EXECUTE FUNCTION note();
-- workload
DO $$
BEGIN
  FOR i IN 1..200 LOOP
    UPDATE accounts SET balance = balance - i % 7 WHERE id = i % 20 + 1;
    UPDATE accounts SET balance = balance + i % 7 WHERE id = (i * 3) % 20 + 1;
    INSERT INTO transfers VALUES (i, i % 20 + 1, (i * 3) % 20 + 1, i % 7);
    COMMIT;
  END LOOP;
END $$;
-- wait
BEGIN;
UPDATE accounts SET balance = 0;
DELETE FROM transfers;
ROLLBACK;

DELETE FROM transfers WHERE from_id = 4 OR to_id = 4;
DELETE FROM accounts WHERE id = 4;
INSERT INTO accounts VALUES (4, 0);
