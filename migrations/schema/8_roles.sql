-- Roles of least privilege; docs/explanation/security.md says who needs which. They cannot log in: grant them to roles that can.
-- Roles belong to the server and not to the database, so they may exist already, and the owner of the schema may not be allowed to
-- create them.
-- PUBLIC may execute nothing; 9_rights.sql grants each right to the roles that need it.

DO $$
DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['dispatcherd_producer', 'dispatcherd_reader', 'dispatcherd_operator', 'dispatcherd_dispatcher'] LOOP
        CONTINUE WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = role);
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', role);
        EXCEPTION
            WHEN duplicate_object OR unique_violation THEN
                NULL; -- the migration of another database was faster
            WHEN insufficient_privilege THEN
                RAISE NOTICE 'role % was not created: % may not create roles', role, current_user;
        END;
    END LOOP;
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA dispatcherd FROM PUBLIC;
REVOKE ALL ON TYPE dispatcherd.caller FROM PUBLIC;
