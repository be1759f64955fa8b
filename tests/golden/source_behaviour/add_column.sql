-- replicate grows
-- setup
CREATE TABLE grows (id int PRIMARY KEY, v text);
INSERT INTO grows SELECT g, 'copied' FROM generate_series(1, 50) g;
-- workload
INSERT INTO grows VALUES (100, 'before');
UPDATE grows SET v = 'changed before' WHERE id = 1;

ALTER TABLE grows ADD COLUMN n int;

INSERT INTO grows VALUES (101, 'after', 5);
UPDATE grows SET n = 7 WHERE id = 2;
-- wait
ALTER TABLE grows ADD COLUMN label text DEFAULT 'as default', ADD COLUMN price numeric(8, 2) NOT NULL DEFAULT 1.50;

UPDATE grows SET v = 'only v' WHERE id = 3;
INSERT INTO grows (id, v) VALUES (102, 'gets defaults');
-- wait
BEGIN;
INSERT INTO grows (id, v) VALUES (103, 'in transaction, before');
ALTER TABLE grows ADD COLUMN inside timestamptz DEFAULT '2020-01-01 00:00:00+00';
UPDATE grows SET label = NULL WHERE id < 10;
INSERT INTO grows (id, v, inside) VALUES (104, 'in transaction, after', NULL);
COMMIT;

ALTER TABLE grows ALTER label SET DEFAULT 'another';
INSERT INTO grows (id, v) VALUES (105, 'other default');
DELETE FROM grows WHERE id = 5;
