-- replicate retyped
-- replicate rewritten
-- replicate bystander
-- setup
CREATE TABLE retyped (id int PRIMARY KEY, v int);
CREATE TABLE rewritten (id int PRIMARY KEY, v int);
CREATE TABLE bystander (id int PRIMARY KEY, v int);
INSERT INTO retyped SELECT g, g FROM generate_series(1, 20) g;
INSERT INTO rewritten SELECT g, g FROM generate_series(1, 20) g;
INSERT INTO bystander SELECT g, g FROM generate_series(1, 20) g;
-- workload
ALTER TABLE retyped ALTER v TYPE text USING 'v' || v;
INSERT INTO retyped VALUES (100, 'text');
INSERT INTO bystander VALUES (100, 1);

ALTER TABLE rewritten ADD COLUMN r double precision DEFAULT random();
INSERT INTO rewritten VALUES (100, 1);
UPDATE bystander SET v = 0;
